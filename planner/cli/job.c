/* From words to a model and a card. */
#include <string.h>
#include <sys/stat.h>

#include "cli.h"
#include "commands.h"
#include "oomplan/safetensors.h"

OOM_WORD_LIST(, oom_allow_choice, OOM_ALLOWS)
OOM_WORD_LIST(, oom_objective_choice, OOM_OBJECTIVES)

unsigned oom_allowed(const struct oom_list *words)
{
	unsigned allow = 0;

	for (size_t i = 0; i < words->n; i++)
		allow |= (unsigned)oom_choice_find(oom_allow_choice, words->items[i]) +
			 OOM_ALLOW_SEQ_LEN;
	return allow;
}

/* What the weights on disk are is said, never used in silence: training needs them in a format that
 * takes gradients, or frozen under adapters. */
static void say_quantised(const struct oom_job *job, const struct oom_keys *keys)
{
	const struct oom_key *how = oom_keys_find(keys, "quantization_config.quant_method"),
			     *four = oom_keys_find(keys, "quantization_config.load_in_4bit");

	if (!oom_keys_find(keys, "quantization_config") || job->plan.qlora)
		return;
	oom_complain(0,
		     "WARNING: the config holds a quantization_config (%s): weights are counted "
		     "as --precision stores them, as if de-quantised; %s",
		     how && how->type == OOM_KEY_STRING ? how->string : "no quant_method",
		     four && four->type == OOM_KEY_BOOL && four->number > 0 ?
			     "for 4-bit bitsandbytes weights under adapters say --qlora" :
			     "adapters on such weights are not modelled, --qlora (NF4) is the nearest");
}

/* Weights beside the config decide: their number is held against the computed one. */
static int check_weights(struct oom_job *job, const struct oom_target *t)
{
	struct oom_plan plan = oom_plan_default();
	struct oom_evaluator *ev = NULL;
	struct oom_tensors held = {0};
	struct oom_error err = {{0}};
	struct oom_eval e;
	struct stat st;
	int code = 0;

	if (stat(job->model, &st) || !S_ISDIR(st.st_mode))
		return 0;
	plan.micro_batch = 1;
	plan.seq_len = oom_model_task(t->model) == OOM_TASK_IMAGE_CLS ? 0 : 8;
	if (oom_tensors_read(&held, job->model, &err)) {
		code = oom_complain(OOM_EXIT_INPUT, "%s", err.text);
	} else if (held.n && held.n_missing_files) {
		oom_complain(0,
			     "warning: %u weight files named by the index are absent: shapes are "
			     "not checked",
			     held.n_missing_files);
	} else if (held.n && (ev = oom_evaluator_new()) != NULL &&
		   !oom_evaluate(ev, t->model, &plan, OOM_EVAL_FAST, &e, &err) &&
		   e.total_params != held.total_elems) {
		const bool decide = !oom_model_known(t->model) &&
				    held.total_elems > e.total_params;

		if (decide)
			job->plan.surplus_params = (int64_t)(held.total_elems - e.total_params);
		oom_complain(0,
			     "WARNING: the safetensors hold %llu parameters, the config gives "
			     "%llu: %s",
			     (unsigned long long)held.total_elems,
			     (unsigned long long)e.total_params,
			     decide ? "the weights decide, their surplus is counted" :
				      "trust the weights, not this plan");
	}
	oom_evaluator_free(ev);
	oom_tensors_release(&held);
	return code;
}

static int open_gpu(struct oom_job *job, struct oom_target *t)
{
	struct oom_error err = {{0}};
	struct oom_gpus gpus = {0};
	enum oom_status st = oom_gpus_load(&gpus, &err);

	if (!st && job->gpus_file)
		st = oom_gpus_read(&gpus, job->gpus_file, &err);
	if (!st && job->gpu) {
		st = oom_gpu_find(&gpus, job->gpu, &t->gpu, t->note, &err);
		t->has_gpu = !st;
		t->capacity = t->gpu.capacity_bytes;
		if (!st && job->plan.compute_capability <= 0)
			job->plan.compute_capability = job->card_capability =
				t->gpu.compute_capability;
	}
	oom_gpus_release(&gpus);
	if (job->gpu_memory.text)
		t->capacity = job->gpu_memory.bytes;
	t->host_ram = job->host_ram.bytes;
	return st ? oom_complain(OOM_EXIT_INPUT, "%s", err.text) : 0;
}

/* The longest batch of an epoch is what has to fit (playbook M16). */
static int apply_lengths(struct oom_job *job, struct oom_target *t)
{
	struct oom_error err = {{0}};
	double steps;

	if (oom_lengths_read(&t->lengths, job->lengths, job->lengths_field, &err))
		return oom_complain(OOM_EXIT_INPUT, "%s", err.text);
	steps = (double)t->lengths.total / (double)job->plan.micro_batch;
	t->lengths_report = oom_lengths_report(&t->lengths, (double)job->plan.micro_batch,
					       steps < 1 ? 1 : steps);
	t->has_lengths = true;
	job->plan.seq_len = t->lengths_report.batching[OOM_BATCH_LONGEST].worst_tokens;
	if (job->plan.seq_len < 1)
		job->plan.seq_len = 1;
	return 0;
}

int oom_target_open(struct oom_job *job, struct oom_target *t, bool need_gpu)
{
	struct oom_error err = {{0}};
	struct oom_model_shape shape;
	int code;

	memset(t, 0, sizeof(*t));
	if (!job->model)
		return oom_complain(OOM_EXIT_USAGE, "which model? --model config.json, a folder, "
						    "or a name of: oomplan list models");
	if (need_gpu && !job->gpu && !job->gpu_memory.text)
		return oom_complain(OOM_EXIT_USAGE, "which GPU? --gpu NAME (oomplan list gpus) or "
						    "--gpu-memory SIZE");
	code = open_gpu(job, t);
	if (!code && job->lengths)
		code = apply_lengths(job, t);
	if (!code)
		code = oom_calibration_open(job);
	if (code) {
		oom_target_close(t);
		return code;
	}
	if (oom_keys_read_model(&t->keys, job->model, &err) ||
	    oom_model_new(&t->model, &t->keys, &err)) {
		oom_target_close(t);
		return oom_complain(OOM_EXIT_INPUT, "%s", err.text);
	}
	if (*oom_model_warning(t->model))
		oom_complain(0, "WARNING: %s", oom_model_warning(t->model));
	say_quantised(job, &t->keys);
	if (*oom_model_unknown_keys(t->model))
		oom_complain(0, "note: keys that %s does not have, not used: %s",
			     oom_model_type(t->model), oom_model_unknown_keys(t->model));
	code = check_weights(job, t);
	if (code) {
		oom_target_close(t);
		return code;
	}
	if (oom_capability(&job->plan) < 8 &&
	    (job->plan.precision == OOM_BF16 || job->plan.precision == OOM_AMP_BF16 ||
	     job->plan.precision == OOM_BF16_AMP))
		oom_complain(0, "warning: bf16 begins with compute capability 8.0 (Ampere); before "
				"it torch emulates it, slowly: "
				"--precision amp-fp16");
	shape = oom_model_shape(t->model);
	if (oom_model_task(t->model) == OOM_TASK_IMAGE_CLS)
		job->plan.seq_len = 0;
	if (shape.max_positions && job->plan.seq_len > (int64_t)shape.max_positions)
		oom_complain(0, "warning: %lld tokens, but the model has %llu positions",
			     (long long)job->plan.seq_len, (unsigned long long)shape.max_positions);
	if ((job->plan.lora_r || job->plan.qlora) && !job->plan.lora_targets[0])
		snprintf(job->plan.lora_targets, sizeof(job->plan.lora_targets), "%s",
			 oom_model_lora_targets(t->model));
	oom_calibration_start(job, t);
	return 0;
}

void oom_target_close(struct oom_target *t)
{
	oom_model_free(t->model);
	oom_keys_release(&t->keys);
	oom_lengths_release(&t->lengths);
	t->has_lengths = false;
	t->model = NULL;
}

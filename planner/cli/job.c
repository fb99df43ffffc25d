/* From words to a model and a card. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli.h"
#include "commands.h"
#include "oomplan/safetensors.h"
#include "term.h"

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

/* Weights beside the config decide: their number is held against the computed one. */
static int check_weights(const struct oom_job *job, struct oom_target *t)
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
			t->q.plan.surplus_params = (int64_t)(held.total_elems - e.total_params);
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

int oom_job_count_gpus(struct oom_job *job)
{
	struct oom_gpu_count c;

	if (!job->gpu || !oom_gpu_counted(job->gpu, &c))
		return 0;
	if (c.nodes > 1 && job->plan.nodes != 1 && job->plan.nodes != c.nodes && !job->reading)
		return oom_complain(OOM_EXIT_USAGE, "--gpu %s says %lld nodes, --nodes %lld",
				    oom_shown(job->gpu), (long long)c.nodes, (long long)job->plan.nodes);
	/* the files of --from stand below the command line */
	if (job->plan.gpus != 1 && job->plan.gpus != c.gpus && !job->reading)
		return oom_complain(OOM_EXIT_USAGE, "--gpu %s says %lld GPUs, --gpus %lld",
				    oom_shown(job->gpu), (long long)c.gpus, (long long)job->plan.gpus);
	if (c.gpus > (int64_t)oom_knob_find("gpus")->max)
		return oom_complain(OOM_EXIT_USAGE, "--gpu %s: %lld GPUs are more than --gpus takes",
				    oom_shown(job->gpu), (long long)c.gpus);
	if (c.nodes > (int64_t)oom_knob_find("nodes")->max)
		return oom_complain(OOM_EXIT_USAGE, "--gpu %s: %lld nodes are more than --nodes takes",
				    oom_shown(job->gpu), (long long)c.nodes);
	job->plan.gpus = c.gpus;
	job->card_gpus = c.gpus / c.nodes;
	if (c.nodes > 1)
		job->plan.nodes = c.nodes;
	snprintf(job->card, sizeof(job->card), "%s", c.name);
	job->gpu = job->card;
	return 0;
}

static int open_gpu(const struct oom_job *job, struct oom_target *t)
{
	struct oom_error err = {{0}};
	struct oom_gpus gpus = {0};
	enum oom_status st = oom_gpus_load(&gpus, &err);

	if (!st && job->gpus_file)
		st = oom_gpus_read(&gpus, job->gpus_file, &err);
	if (!st && job->gpu && !job->any_card) {
		st = oom_gpu_find(&gpus, job->gpu, &t->gpu, t->note, &err);
		t->q.gpu = st ? NULL : &t->gpu;
	}
	oom_gpus_release(&gpus);
	/* the report has it, unless there is none */
	if (!st && *t->note && job->quiet)
		oom_complain(0, "note: %s", t->note);
	if (job->gpu_memory.text)
		t->q.capacity_bytes = job->gpu_memory.bytes;
	t->q.host_ram_bytes = job->host_ram.bytes;
	return st ? oom_complain(OOM_EXIT_INPUT, "%s", err.text) : 0;
}

static int open_lengths(const struct oom_job *job, struct oom_target *t)
{
	struct oom_error err = {{0}};

	if (!job->lengths)
		return 0;
	if (oom_lengths_read(&t->lengths, job->lengths, job->lengths_field, &err))
		return oom_complain(OOM_EXIT_INPUT, "%s", err.text);
	t->q.lengths = &t->lengths;
	return 0;
}

static int open_calibration(const struct oom_job *job, struct oom_target *t)
{
	struct oom_error err = {{0}};
	enum oom_status st;

	if (!job->calibration && !(job->confidence > 0))
		return 0;
	t->q.confidence = job->confidence;
	/* where nothing was published, the plan's margin decides, and the report says so */
	t->q.by_kind = !job->calibration;
	if (t->q.by_kind)
		return 0;
	st = oom_calibration_read(&t->calibration, job->calibration, &err);
	if (st)
		return oom_complain(OOM_EXIT_INPUT, "%s", err.text);
	t->q.calibration = &t->calibration;
	return 0;
}

static int open_model(const struct oom_job *job, struct oom_target *t)
{
	struct oom_error err = {{0}};
	struct oom_plan settled;

	if ((job->described ? oom_keys_parse(&t->keys, job->described, strlen(job->described), "the files' model", &err) :
			      oom_keys_read_model(&t->keys, job->model, &err)) ||
	    oom_model_new(&t->model, &t->keys, &err))
		return oom_complain(OOM_EXIT_INPUT, "%s", err.text);
	t->q.model = t->model;
	if (job->teacher && (oom_keys_read_model(&t->teacher_keys, job->teacher, &err) ||
			     oom_model_new(&t->teacher, &t->teacher_keys, &err)))
		return oom_complain(OOM_EXIT_INPUT, "%s", err.text);
	oom_model_teach(t->model, t->teacher);
	if (*oom_model_warning(t->model))
		oom_complain(0, "WARNING: %s", oom_model_warning(t->model));
	/* what the report says is not said where there is none */
	settled = job->plan;
	oom_model_settle_base(t->model, &settled);
	if (job->quiet && *oom_model_stored_warning(t->model, &settled))
		oom_complain(0, "WARNING: %s", oom_model_stored_warning(t->model, &settled));
	if (*oom_model_unknown_keys(t->model))
		oom_complain(0, "note: keys that %s does not have, not used: %s",
			     oom_model_type(t->model), oom_model_unknown_keys(t->model));
	return check_weights(job, t);
}

/* GPUs of the largest machine with such cards: NVLink's domain, else the 16 of NVIDIA's DGX-2 and Google's
 * a2-megagpu-16g; nobody rents a larger one (data/boxes.csv). */
static int64_t largest_node(const struct oom_gpu *gpu)
{
	enum { LARGEST = 16 };

	return gpu && gpu->nvlink_domain > LARGEST ? (int64_t)gpu->nvlink_domain : LARGEST;
}

/* What may be meant otherwise. */
static void warn(const struct oom_target *t)
{
	const struct oom_model_shape shape = oom_model_shape(t->model);
	const struct oom_plan *p = &t->q.plan;

	if (oom_capability(p) < 8 && (p->precision == OOM_BF16 || p->precision == OOM_AMP_BF16 ||
				      p->precision == OOM_BF16_AMP))
		oom_complain(0, "warning: bf16 begins with compute capability 8.0 (Ampere); before "
				"it torch emulates it, slowly: "
				"--precision amp-fp16");
	if (shape.max_positions && p->seq_len > (int64_t)shape.max_positions)
		oom_complain(0, "warning: %lld tokens, but the model has %llu positions",
			     (long long)p->seq_len, (unsigned long long)shape.max_positions);
	if (p->gpus / p->nodes > largest_node(t->q.gpu))
		oom_complain(0, "warning: %lld GPUs in one machine, which none has: the step time and the host's memory "
				"are those of such a machine; --gpus-per-node 8 (or --gpu 8x8xNAME) says how they are spread",
			     (long long)(p->gpus / p->nodes));
}

/* Where the command line names no card: that of a task's file, if it is one that is known. */
static void take_card(struct oom_job *job)
{
	const char *card = job->reading && !job->gpu && !job->gpu_memory.text ? oom_reading_card(job->reading) : NULL;
	struct oom_error err = {{0}};
	struct oom_gpus gpus = {0};
	struct oom_gpu gpu;

	if (!card)
		return;
	if (!oom_gpus_load(&gpus, &err) && (!job->gpus_file || !oom_gpus_read(&gpus, job->gpus_file, &err)) &&
	    !oom_gpu_find(&gpus, card, &gpu, NULL, &err))
		job->gpu = card;
	else
		oom_complain(0, "warning: the card of the files is not taken: %s", err.text);
	oom_gpus_release(&gpus);
}

/* Whose files start the run: that of the format that is written, else of the files that were read. */
static int64_t framework_of(const struct oom_job *job)
{
	const char *whose = NULL;

	for (size_t i = 0; !whose && i < job->emit.n; i++)
		whose = oom_emit_job_framework(job->emit.items[i]);
	if (!whose && job->reading)
		whose = oom_reading_framework(job->reading);
	return oom_framework_number(whose);
}

int oom_target_open(struct oom_job *job, struct oom_target *t, bool need_gpu)
{
	int code;

	memset(t, 0, sizeof(*t));
	t->q.plan = job->plan;
	t->q.allow = oom_allowed(&job->allow);
	t->q.brief = job->quiet;
	t->q.keep_launcher = job->reading != NULL;
	t->q.plan.framework = framework_of(job);
	code = oom_from_model(job);
	if (code)
		return code;
	if (!job->model)
		return oom_complain(OOM_EXIT_USAGE, "which model? --model config.json, a folder, "
						    "or a name of: oomplan list models");
	take_card(job);
	if (need_gpu && !job->gpu && !job->gpu_memory.text)
		return oom_complain(OOM_EXIT_USAGE, "which GPU? --gpu NAME (oomplan list gpus) or "
						    "--gpu-memory SIZE");
	code = open_gpu(job, t);
	if (!code)
		code = open_lengths(job, t);
	if (!code)
		code = open_calibration(job, t);
	if (!code)
		code = open_model(job, t);
	if (code) {
		oom_target_close(t);
		return code;
	}
	oom_from_kernels(job, t->model);
	oom_from_base(job, t->model);
	oom_from_attn(job, t->q.gpu);
	t->q.plan.attn = job->plan.attn;
	t->q.plan.liger_kernels = job->plan.liger_kernels;
	t->q.plan.base_weights = job->plan.base_weights;
	t->q.plan.base_group = job->plan.base_group;
	t->q.plan.double_quant = job->plan.double_quant;
	t->name = strcmp(job->model, "-") ? job->model : oom_model_type(t->model);
	oom_question_settle(&t->q);
	warn(t);
	return 0;
}

void oom_target_close(struct oom_target *t)
{
	oom_model_free(t->model);
	oom_keys_release(&t->keys);
	oom_model_free(t->teacher);
	oom_keys_release(&t->teacher_keys);
	oom_lengths_release(&t->lengths);
	memset(t, 0, sizeof(*t));
}

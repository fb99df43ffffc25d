/* What follows from all files of a run together.
 *
 * Files say precision in pieces: the format weights are loaded in (@dtype: fp32, bf16, fp16), what
 * computes (@autocast: bf16, fp16, no), what DeepSpeed's file says (@ds16: bf16, fp16, auto, no).
 * Engines then change it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "arguments.h"
#include "oomplan/option.h"
#include "oomplan/rules.h"
#include "parts.h"

/* transformers: accelerate switches autocast off under DeepSpeed (accelerate accelerator.py, class
 * Accelerator, autocast_handler; utils/dataclasses.py DeepSpeedPlugin.set_mixed_precision adds a
 * bf16 section where the JSON has none), so weights and computation are 16 bit, masters fp32. */
static const char *under_deepspeed(struct fw_part *all)
{
	const char *said = fw_fact(all, "@ds16"), *autocast = fw_fact(all, "@autocast");

	if (!strcmp(said, "bf16") || !strcmp(said, "fp16"))
		return said;
	if (!strcmp(autocast, "bf16") || !strcmp(autocast, "fp16"))
		return autocast;
	if (!strcmp(said, "no") && !*autocast)
		return "fp32";
	if (*autocast)  /* a trainer is there and computes as it loads */
		return fw_fact(all, "@dtype");
	return "";
}

static const char *mixture(const char *dtype, const char *autocast)
{
	const bool sixteen = !strcmp(dtype, "bf16") || !strcmp(dtype, "fp16");

	if (!strcmp(autocast, "bf16"))
		return sixteen ? "bf16-amp" : "amp-bf16";
	if (!strcmp(autocast, "fp16"))
		return sixteen ? "fp16-amp" : "amp-fp16";
	return *dtype ? dtype : "";
}

static bool is_adapted(const struct fw_part *all)
{
	return fw_fact_is(all, "method", "lora") || atoi(fw_fact(all, "lora-r")) > 0;
}

/* FSDP under accelerate with mixed precision keeps trainable parameters in fp32 (accelerate
 * utils/fsdp_utils.py fsdp2_prepare_model, accelerator.py prepare_model for FSDP1); adapters are
 * fp32 already and the frozen base stays as it is. */
static bool upcasts(struct fw_part *all)
{
	const char *engine = fw_fact(all, "engine"), *autocast = fw_fact(all, "@autocast");

	return (!strcmp(engine, "fsdp1") || !strcmp(engine, "fsdp2")) && !is_adapted(all) &&
	       !fw_fact_is(all, "@keeps-dtype", "true") && strcmp(autocast, "no") && *autocast;
}

static void settle_precision(struct fw_part *all)
{
	const char *dtype = fw_fact(all, "@dtype"), *autocast = fw_fact(all, "@autocast");
	const char *value;
	struct fact *f;
	bool from_file;

	if (part_fact(all, "precision") || (!*dtype && !*autocast && !part_fact(all, "@ds16")))
		return;
	if (fw_fact_is(all, "engine", "deepspeed"))
		value = under_deepspeed(all);
	else
		value = mixture(upcasts(all) ? "fp32" : dtype, autocast);
	from_file = fw_fact_from_file(all, "@dtype") || fw_fact_from_file(all, "@autocast") ||
		    fw_fact_from_file(all, "@ds16");
	if (!*value)
		return;
	fw_set(all, "precision", value, NULL, NULL);
	f = part_fact(all, "precision");
	if (!f)
		return;
	f->from_file = from_file;
	f->setting = NO_SETTING;
	if (part_fact(all, "@autocast"))
		f->setting = part_fact(all, "@autocast")->setting;
	if (f->setting == NO_SETTING && part_fact(all, "@dtype"))
		f->setting = part_fact(all, "@dtype")->setting;
	if (f->setting == NO_SETTING && part_fact(all, "@ds16"))
		f->setting = part_fact(all, "@ds16")->setting;
	f->source = "weights' format and autocast together, as the engine changes them";
	if (!*dtype && !strcmp(fw_fact(all, "engine"), "hf")) {
		f->open = true;
		f->why = "the script decides what weights are loaded in; fp32 is taken";
	}
}

/* A checkpoint that is quantised says so in its name; only its config.json is sure. */
static void settle_checkpoint(struct fw_part *all)
{
	static const struct {
		const char *mark, *bits;
	} marks[] = {{"awq", "4-awq"}, {"gptq", "4-gptq"}, {"bnb-4bit", "4-nf4"}, {"aqlm", "2-aqlm"},
		     {"hqq", "4-hqq"}, {"bnb-8bit", "8"}};
	const char *model = fw_fact(all, "model");

	if (part_fact(all, "base-bits"))
		return;
	for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++)
		for (const char *p = model; *p; p++)
			if (!strncasecmp(p, marks[i].mark, strlen(marks[i].mark))) {
				fw_set(all, "base-bits", marks[i].bits, NULL, "the checkpoint's name");
				fw_open(all, "base-bits", "taken from the checkpoint's name");
				return;
			}
}

static int64_t whole(const struct fw_part *all, const char *knob, int64_t otherwise)
{
	const char *text = fw_fact(all, knob);

	return *text ? strtoll(text, NULL, 10) : otherwise;
}

/* A key that counts the rows that all cards hold at once. Where nobody says how many cards there are it is one, as
 * in the rest of the report. */
static void settle_all_micro(struct fw_part *all)
{
	const int64_t gpus = whole(all, "gpus", 0), rows = whole(all, "@all-micro-batch", 0);

	if (rows <= 0 || part_fact(all, "micro-batch") || (gpus > 0 && rows % gpus))
		return;
	fw_set_whole(all, "micro-batch", gpus > 0 ? rows / gpus : rows, NULL, "the rows of all cards / GPUs");
	if (gpus <= 0)
		fw_open(all, "micro-batch", "the file counts the rows of all cards, and how many there are is open: "
			"they are taken to be on one");
}

/* All three batch sizes say for how many GPUs they were written: DeepSpeed's runtime/config.py _batch_assertion
 * refuses any other number. */
static void settle_gpus(struct fw_part *all, int64_t shards)
{
	const int64_t micro = whole(all, "micro-batch", 0), accum = whole(all, "grad-accum", 0), global = whole(all, "global-batch", 0);

	if (part_fact(all, "gpus") || fw_is_withheld(all, "gpus") || !fw_fact_from_file(all, "micro-batch") ||
	    !fw_fact_from_file(all, "grad-accum") || !fw_fact_from_file(all, "global-batch") || micro <= 0 || accum <= 0 ||
	    micro > 1000000 || accum > 1000000 || shards <= 0 || shards > 1000000 || global <= 0 || global % (micro * accum) ||
	    global / (micro * accum) > 1000000)
		return;
	fw_set_whole(all, "gpus", global / (micro * accum) * shards, NULL, "global batch / (micro-batch x accumulation)");
}

/* Of the three batch sizes two give the third, where the GPUs are known. */
static void settle_batch(struct fw_part *all)
{
	const int64_t gpus = whole(all, "gpus", 0),
		      shards = whole(all, "tp", 1) * whole(all, "pp", 1) * whole(all, "cp", 1) *
			       whole(all, "@sequence-shards", 1),
		      micro = whole(all, "micro-batch", 0), accum = whole(all, "grad-accum", 0),
		      global = whole(all, "global-batch", 0);
	const int64_t replicas = gpus > 0 && shards > 0 && gpus >= shards ? gpus / shards : 0;

	settle_gpus(all, shards);
	if (!replicas || micro < 0 || accum < 0 || micro > 1000000 || accum > 1000000)
		return;
	if (micro && accum && !global && replicas < 1000000)
		fw_set_whole(all, "global-batch", micro * accum * replicas, NULL,
			     "micro-batch x accumulation x data-parallel GPUs");
	else if (micro && global && !fw_fact_from_file(all, "grad-accum") &&
		 global % (micro * replicas) == 0)
		fw_set_whole(all, "grad-accum", global / (micro * replicas), NULL,
			     "global batch / (micro-batch x data-parallel GPUs)");
	else if (accum && global && !micro && global % (accum * replicas) == 0)
		fw_set_whole(all, "micro-batch", global / (accum * replicas), NULL,
			     "global batch / (accumulation x data-parallel GPUs)");
	else if (micro && global && fw_fact_from_file(all, "micro-batch") && fw_fact_from_file(all, "global-batch") &&
		 global < micro * replicas) {
		fw_set(all, "@price.global-batch", "0", NULL, NULL);
		fw_open(all, "global-batch", reading_text(all->reading, "%lld rows of all GPUs are fewer than micro-batch x GPUs (%lld x %lld): "
			"the micro-batch is priced as it stands", (long long)global, (long long)micro, (long long)replicas));
	}
}

/* LoRA's own defaults stand where the method is LoRA, and nowhere else. */
static void settle_adapters(struct fw_part *all)
{
	if (!part_fact(all, "method"))
		return;
	if (!fw_fact_is(all, "method", "lora")) {
		fw_set(all, "lora-r", "0", NULL, "no adapters");
		fw_unset(all, "lora-targets");
		fw_unset(all, "lora-dropout");
	}
}

/* One process that sees several cards and loads with device_map lays the model out over them. */
static void settle_device_map(struct fw_part *all)
{
	if (!fw_fact_is(all, "@device-map", "auto") || !fw_fact_is(all, "@one-process", "true") ||
	    !fw_fact_is(all, "engine", "hf"))
		return;
	fw_set(all, "engine", "device-map", NULL, "device_map over the cards that one process sees");
}

/* "python train.py", which no launcher starts, is one process: transformers' Trainer wraps the model for all cards that it sees
 * (training_args.py n_gpu, trainer.py _wrap_model), unless it is quantised or laid out over them. */
static void settle_replicated(struct oom_reading *r)
{
	struct fw_part *all = r->all;
	const int64_t gpus = whole(all, "gpus", r->gpus);
	bool plain = false, launched = false;

	for (size_t i = 0; i < r->n_parts; i++) {
		const char *program = fw_text(r->parts[i], ARGS_PROGRAM), *dot = strrchr(program, '.');

		plain |= r->parts[i]->fw->wraps_replicas && dot && !strcmp(dot, ".py");
		launched |= r->parts[i]->fw->role == FW_LAUNCHER && *fw_text(r->parts[i], "name");
	}
	if (plain && !launched && !r->other_engine && gpus > 1 && fw_fact_is(all, "engine", "hf") &&
	    (!part_fact(all, "base-bits") || fw_fact_is(all, "base-bits", "16")))
		fw_set(all, "data-parallel", "true", NULL, "transformers/trainer.py _wrap_model: one process sees all cards, no launcher is named");
}

/* Where DeepSpeed's file has an optimizer, Trainer makes none of its own, whatever optim says (transformers
 * integrations/deepspeed.py deepspeed_optim_sched). */
static void settle_optimizer(struct fw_part *all)
{
	const struct fact *engine = part_fact(all, "@engine-optimizer");
	struct fact *f = part_fact(all, "optimizer");

	if (!engine || !f || !fw_fact_is(all, "engine", "deepspeed") || !strcmp(f->value, engine->value))
		return;
	f->value = engine->value;
	f->setting = engine->setting;
	f->from_file = true;
	f->source = "DeepSpeed's file has an optimizer: the trainer's is not made";
}

/* torchao's products are compiled as they are priced: otherwise casts go through fp32 (torchao/float8/
 * float8_tensor.py).  accelerate's fp8 is no more where the trainer asks for 16 bit: TrainingArguments say that to the
 * same variable (transformers training_args.py ACCELERATE_MIXED_PRECISION). */
static void settle_fp8(struct oom_reading *r)
{
	struct fw_part *all = r->all;
	const struct fact *fp8 = part_fact(all, "fp8");
	bool replaced = false;

	if (!fp8 || !strcmp(fp8->value, "none") || fw_fact_is(all, "engine", "megatron"))
		return;
	for (size_t i = 0; i < r->n_parts; i++)
		replaced |= r->parts[i]->fw->role == FW_TRAINER &&
			    (fw_fact_is(r->parts[i], "@autocast", "bf16") || fw_fact_is(r->parts[i], "@autocast", "fp16"));
	if (replaced && part_fact(all, "@launcher-fp8")) {
		if (fp8->setting != NO_SETTING)
			r->settings[fp8->setting].note = "not in effect: the trainer asks for 16-bit computation";
		fw_unset(all, "fp8");
	} else if (!fw_fact_is(all, "compile", "true")) {
		fw_open(all, "fp8", "fp8 is priced compiled: without torch.compile its casts go through fp32, which is more");
	}
}

/* Replicas of a sharded model, each over as many cards as it has shards: a plan has one per machine, and as many machines
 * as there are replicas give the same shards.  Where no file says how many cards there are, the fewest that the degrees
 * allow. */
static void settle_replicas(struct fw_part *all)
{
	const int64_t others = whole(all, "tp", 1) * whole(all, "pp", 1) * whole(all, "cp", 1), shards = whole(all, "@shards", 0),
		      gpus = whole(all, "gpus", 0);
	int64_t replicas = whole(all, "@replicas", 0);

	if (!replicas && shards > 0)
		replicas = gpus > shards ? gpus / shards : 1;
	if (replicas < 1 || others < 1 || others > 100000)
		return;
	if (!gpus && replicas > 1 && !fw_is_withheld(all, "gpus")) {
		fw_set_whole(all, "gpus", replicas * others, NULL, "the fewest for so many replicas");
		fw_open(all, "gpus", "the files do not say how many: the fewest that the degrees allow are priced, unless --gpus says");
	}
	if (replicas == 1) {
		fw_set(all, "@price.hybrid-shard", "false", NULL, NULL);
	} else if (whole(all, "gpus", 0) && whole(all, "gpus", 0) % replicas == 0) {
		fw_set_whole(all, "@price.nodes", replicas, NULL, NULL);
		if (whole(all, "nodes", 1) != replicas)
			fw_open(all, "nodes", reading_text(all->reading, "%lld replicas of a sharded model are priced as so many machines: "
				"memory is the same, times and what --emit writes are theirs", (long long)replicas));
	} else {
		fw_open(all, "hybrid-shard", reading_text(all->reading, "%lld replicas are not known to divide the cards: a replica per "
			"machine is priced", (long long)replicas));
	}
}

/* Where Trainer's own checkpoints are switched off, FSDP's may be on, in the file that nobody has. */
static void settle_unseen_fsdp(struct fw_part *all)
{
	if (fw_fact_is(all, "@fsdp-unseen", "true") && fw_fact_is(all, "grad-ckpt", "none"))
		fw_open(all, "grad-ckpt", "the FSDP file that is not at hand may have fsdp_activation_checkpointing: none is taken, which "
			"needs more");
}

/* One process has nobody to share with: FSDP1 says that it switches to NO_SHARD (torch/distributed/fsdp/_init_utils.py
 * _init_core_state). */
static void settle_one_process(struct fw_part *all)
{
	if (!fw_fact_is(all, "engine", "fsdp1") || whole(all, "gpus", 0) != 1 || !fw_fact_from_file(all, "gpus") || whole(all, "zero", 0) < 1)
		return;
	fw_set(all, "@price.zero", "0", NULL, NULL);
	fw_open(all, "zero", "one process: FSDP shards nothing there, and is priced so");
}

/* One rank of a layer has no collectives to overlap: NeMo switches the overlap off there with sequence parallelism
 * (megatron_base_model.py _validate_and_override_config).  A degree in a variable is priced as one as well. */
static void settle_overlap(struct fw_part *all)
{
	if (fw_fact_is(all, "tp-comm-overlap", "true") && whole(all, "tp", 1) <= 1)
		fw_set(all, "@price.tp-comm-overlap", "false", NULL, NULL);
}

/* Whether the knobs' rules refuse the loss beside the objective; one that no knob has is without whole logits (apply.c). */
static bool refuses_loss(const char *objective, const char *loss)
{
	const struct oom_option *knob = oom_knob_find("loss");
	struct oom_plan plan = oom_plan_default();
	const struct oom_rule *rule;

	if (oom_plan_set(&plan, oom_knob_find("objective"), objective, NULL))
		return false;
	if (oom_plan_set(&plan, knob, loss, NULL))
		oom_plan_set(&plan, knob, "fused", NULL);
	rule = oom_plan_broken(&plan, NULL);
	return rule && oom_rule_concerns(rule, knob);
}

/* What compares answers or models works on whole logits: a file's fused or chunked loss there is priced as they are, but
 * none that holds more of them than the plain one. */
static void settle_whole_logits(struct fw_part *all)
{
	const struct fact *loss = part_fact(all, "loss"), *objective = part_fact(all, "objective");

	if (!loss || !strcmp(loss->value, "outside") || !strcmp(loss->value, "own-type") || !objective || !refuses_loss(objective->value, loss->value))
		return;
	fw_set(all, "@price.loss", "plain", NULL, NULL);
	fw_open(all, "loss", "of this objective whole logits are priced: more than the file's loss takes");
}

/* Trainer enters no_sync for all micro-batches of a step but the last (transformers/trainer.py; accelerate accelerator.py
 * no_sync), unless its file asks for a reduction of each. */
static void settle_sync(struct oom_reading *r)
{
	static const char key[] = "accelerator_config.gradient_accumulation_kwargs.sync_each_batch";
	struct fw_part *all = r->all;
	bool each = false;

	for (size_t i = 0; i < r->n_parts; i++)
		each |= fw_on(r->parts[i], key);
	if (fw_fact_is(all, "loop", "trainer") && !each && (fw_fact_is(all, "engine", "fsdp1") || fw_fact_is(all, "engine", "fsdp2")) &&
	    whole(all, "zero", 0) >= 2 && whole(all, "grad-accum", 1) > 1 && whole(all, "gpus", 2) > 1)
		fw_default(all, "no-sync", "true", "transformers/trainer.py: accelerator.no_sync");
}

void reading_settle(struct oom_reading *r)
{
	struct fw_part *all = r->all;

	settle_optimizer(all);
	settle_device_map(all);
	settle_replicated(r);
	settle_unseen_fsdp(all);
	settle_adapters(all);
	settle_checkpoint(all);
	reading_settle_age(r);
	settle_precision(all);
	settle_fp8(r);
	settle_all_micro(all);
	settle_batch(all);
	if (fw_fact_is(all, "engine", "deepspeed"))
		fw_default(all, "zero", "0", "deepspeed/runtime/zero/config.py stage");
	/* no card and no rank beside the one: every framework's default */
	if (part_fact(all, "engine")) {
		fw_default(all, "zero", "0", "nothing is sharded");
		fw_default(all, "offload-optimizer", "none", "not asked for");
		fw_default(all, "offload-params", "none", "not asked for");
	}
	if (part_fact(all, "engine") || part_fact(all, "micro-batch")) {
		fw_default(all, "tp", "1", "not asked for");
		fw_default(all, "pp", "1", "not asked for");
		fw_default(all, "cp", "1", "not asked for");
	}
	if (part_fact(all, "micro-batch") || fw_is_withheld(all, "micro-batch")) {
		fw_default(all, "ep", "1", "not asked for");
		fw_default(all, "nodes", "1", "one machine unless a launcher says otherwise");
		fw_default(all, "base-bits", "16", "no quantisation is asked for");
	}
	if (fw_fact_is(all, "hybrid-shard", "true"))
		settle_replicas(all);
	settle_one_process(all);
	settle_whole_logits(all);
	settle_overlap(all);
	settle_sync(r);
	if (whole(all, "gpus", 0) == 1)
		fw_default(all, "nodes", "1", "one GPU");
}

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
	/* autocast around FSDP1's weights as they are is not accelerate's (models/step/engines.c upcasts) */
	if (fw_fact_is(all, "engine", "fsdp1") && fw_fact_is(all, "@keeps-dtype", "true") && *autocast && strcmp(autocast, "no"))
		fw_set(all, "torch-autocast", "true", NULL, "16-bit weights stay so where FSDP is not accelerate's");
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
	const int64_t gpus = part_whole(all, "gpus", r->gpus);
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

/* Where Trainer's own checkpoints are switched off, FSDP's may be on, in the file that nobody has. */
static void settle_unseen_fsdp(struct fw_part *all)
{
	if (fw_fact_is(all, "@fsdp-unseen", "true") && fw_fact_is(all, "grad-ckpt", "none"))
		fw_open(all, "grad-ckpt", "the FSDP file that is not at hand may have fsdp_activation_checkpointing: none is taken, which "
			"needs more");
}

/* One rank of a layer has no collectives to overlap: NeMo switches the overlap off there with sequence parallelism
 * (megatron_base_model.py _validate_and_override_config).  A degree in a variable is priced as one as well. */
static void settle_overlap(struct fw_part *all)
{
	if (fw_fact_is(all, "tp-comm-overlap", "true") && part_whole(all, "tp", 1) <= 1)
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
	    part_whole(all, "zero", 0) >= 2 && part_whole(all, "grad-accum", 1) > 1 && part_whole(all, "gpus", 2) > 1)
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
	reading_settle_all_micro(all);
	reading_settle_batch(all);
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
		reading_settle_replicas(all);
	reading_settle_one_process(all);
	settle_whole_logits(all);
	settle_overlap(all);
	settle_sync(r);
	if (part_whole(all, "gpus", 0) == 1)
		fw_default(all, "nodes", "1", "one GPU");
}

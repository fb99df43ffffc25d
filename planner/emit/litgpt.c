/* litgpt: one YAML for each of its commands. */
#include <stdio.h>
#include <string.h>

#include "emit/fills.h"

/* Plans do not tell pretraining from tuning; but its fused step beside whole fp32 logits is litgpt pretrain's alone. */
static bool pretrains(const struct emission *e)
{
	return !emit_adapted(e) && emit_is(e, "optimizer", "adamw-fused") && emit_is(e, "loss", "outside");
}

/* bitsandbytes' words (litgpt/finetune/lora.py --quantize); the knob's own word for its layers is NF4 too. */
static void quantisation(struct emission *e)
{
	const bool twice = emit_is(e, "double-quant", "true");

	if (emit_is(e, "base-weights", "fp4"))
		emit_set(e, "quantize", twice ? "bnb.fp4-dq" : "bnb.fp4");
	else if (emit_is(e, "base-bits", "4-nf4"))
		emit_set(e, "quantize", twice ? "bnb.nf4-dq" : "bnb.nf4");
	else if (emit_is(e, "base-bits", "8"))
		emit_set(e, "quantize", "bnb.int8-training");
}

/* Each kind of matrix has a switch of its own (litgpt/lora.py Config). */
static void adapters(struct emission *e)
{
	static const struct {
		const char *key, *module;
	} parts[] = {{"lora_query", "q_proj"}, {"lora_key", "k_proj"}, {"lora_value", "v_proj"}, {"lora_projection", "o_proj"},
		     {"lora_mlp", "up_proj"}, {"lora_head", "lm_head"}};
	const char *targets = e->plan->lora_targets;
	const bool all = !strcmp(targets, "all-linear");

	emit_rows(e, "", "litgpt", "lora_r lora_dropout");
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		emit_set(e, parts[i].key, strstr(targets, parts[i].module) || (all && strcmp(parts[i].module, "lm_head")) ? "true" : "false");
}

static void optimizer(struct emission *e)
{
	if (emit_is(e, "optimizer", "sgd"))
		emit_set(e, "optimizer", "SGD");
	else
		emit_set(e, "optimizer", "AdamW");
}

void fill_litgpt(struct emission *e)
{
	const int64_t nodes = e->plan->nodes > 0 ? e->plan->nodes : 1;
	char buf[160];

	/* pretraining takes a name of litgpt/config.py, which has no owner */
	snprintf(buf, sizeof(buf), "checkpoints/%s", e->model);
	emit_set(e, pretrains(e) ? "tokenizer_dir" : "checkpoint_dir", buf);
	if (pretrains(e))
		emit_set(e, "model_name", strrchr(e->model, '/') ? strrchr(e->model, '/') + 1 : e->model);
	emit_rows(e, "", "litgpt", "precision");
	quantisation(e);
	snprintf(buf, sizeof(buf), "%lld", (long long)(e->plan->gpus / nodes));
	/* sharded over a number that nobody has said */
	emit_set(e, "devices", e->plan->gpus < 2 && emit_is(e, "engine", "fsdp1") ? "auto" : buf);
	emit_rows(e, "", "litgpt", "num_nodes");
	if (emit_adapted(e))
		adapters(e);
	emit_rows(e, "", "litgpt", "train.micro_batch_size train.max_seq_length");
	snprintf(buf, sizeof(buf), "%lld",
		 (long long)(e->plan->micro_batch * e->plan->grad_accum * oom_plan_data_parallel(e->plan)));
	emit_set(e, "train.global_batch_size", buf);
	optimizer(e);
}

void write_litgpt(struct emission *e, struct emit_text *out)
{
	emit_put(out, "# litgpt %s --config FILE\n",
		 pretrains(e) ? "pretrain" : emit_adapted(e) ? "finetune_lora" : "finetune_full");
	emit_yaml(e, out);
}

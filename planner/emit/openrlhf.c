/* OpenRLHF's command lines, with the dotted options of 2026: SFT, DPO, reward models, and the actor of an RL run. */
#include <stdio.h>
#include <string.h>

#include "emit/fills.h"

#define RLHF "openrlhf"

/* Its programs, one for each objective; of any other SFT's is written and what is lost is named. */
static const struct {
	const char *objective, *program, *estimator;
} programs[] = {
	{"sft", "train_sft", NULL}, {"dpo", "train_dpo", NULL}, {"reward", "train_rm", NULL},
	{"ppo", "train_ppo_ray", "gae"}, {"ppo-apart", "train_ppo_ray", "gae"}, {"grpo", "train_ppo_ray", "group_norm"},
};

static size_t program_of(const struct emission *e)
{
	for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++)
		if (emit_is(e, "objective", programs[i].objective))
			return i;
	return 0;
}

static bool of_ray(const struct emission *e)
{
	return programs[program_of(e)].estimator != NULL;
}

/* The model's own options stand below "actor" where there are several models. */
static void model(struct emission *e)
{
	const bool ray = of_ray(e);

	emit_set(e, ray ? "actor.model_name_or_path" : "model.model_name_or_path", e->model);
	emit_rows(e, "", RLHF, ray ? "actor.gradient_checkpointing_enable" : "model.gradient_checkpointing_enable");
	if (!emit_is(e, "grad-ckpt", "none"))
		emit_rows(e, "", RLHF, ray ? "actor.gradient_checkpointing_reentrant" : "model.gradient_checkpointing_reentrant");
}

static void adapters(struct emission *e)
{
	if (!emit_adapted(e))
		return;
	emit_rows(e, "", RLHF, "ds.lora.rank ds.lora.dropout");
	emit_names(e, "ds.lora.target_modules", e->plan->lora_targets);
	if (emit_is(e, "base-bits", "4-nf4"))
		emit_set(e, "ds.load_in_4bit", "true");
}

static void ranks(struct emission *e)
{
	const int64_t nodes = e->plan->nodes > 0 ? e->plan->nodes : 1;
	char buf[160];

	emit_rows(e, "", RLHF, "ds.zero_stage");
	if (e->plan->tp > 1)
		emit_rows(e, "", RLHF, "ds.tensor_parallel_size");
	if (e->plan->cp > 1)
		emit_set(e, "ds.ring_attn_size", emit_fact(e, "cp", buf));
	if (emit_is(e, "offload-optimizer", "cpu"))
		emit_set(e, "ds.adam_offload", "true");
	if (!of_ray(e))
		return;
	emit_set(e, "algo.advantage.estimator", programs[program_of(e)].estimator);
	if (emit_is(e, "objective", "ppo-apart"))
		emit_set(e, "train.colocate_all", "true");
	snprintf(buf, sizeof(buf), "%lld", (long long)nodes);
	emit_set(e, "actor.num_nodes", buf);
	snprintf(buf, sizeof(buf), "%lld", (long long)(e->plan->gpus / nodes));
	emit_set(e, "actor.num_gpus_per_node", buf);
}

void fill_openrlhf(struct emission *e)
{
	char buf[160];

	model(e);
	emit_set(e, "train.micro_batch_size", emit_fact(e, "micro-batch", buf));
	snprintf(buf, sizeof(buf), "%lld",
		 (long long)(e->plan->micro_batch * e->plan->grad_accum * oom_plan_data_parallel(e->plan)));
	emit_set(e, "train.batch_size", buf);
	if (e->plan->seq_len > 0)
		emit_set(e, "data.max_len", emit_fact(e, "seq-len", buf));
	ranks(e);
	emit_set(e, "ds.param_dtype", emit_is(e, "precision", "fp16") ? "fp16" : "bf16");
	emit_rows(e, "", RLHF, "ds.attn_implementation");
	if (emit_is(e, "packing", "true"))
		emit_set(e, "ds.packing_samples", "true");
	if (emit_is(e, "overlap-comm", "true"))
		emit_set(e, "ds.overlap_comm", "true");
	if (emit_is(e, "fp32-grad-accum", "true"))
		emit_set(e, "ds.grad_accum_dtype", "fp32");
	if (emit_is(e, "optimizer", "muon"))
		emit_set(e, "optim", "muon");
	adapters(e);
}

/* "--a.b value"; switches alone. */
static void options(const struct doc_node *map, const char *above, struct emit_text *out)
{
	for (const struct doc_node *c = map->child; c; c = c->next) {
		char path[200];

		snprintf(path, sizeof(path), "%s%s%s", above, *above ? "." : "", c->key);
		if (c->kind == DOC_MAP) {
			options(c, path, out);
			continue;
		}
		if (c->kind == DOC_SCALAR && !strcmp(c->text, "false"))
			continue;
		emit_put(out, " \\\n  --%s", path);
		for (const struct doc_node *i = c->kind == DOC_LIST ? c->child : NULL; i; i = i->next) {
			emit_put(out, " ");
			emit_shell_word(out, i->text);
		}
		if (c->kind == DOC_SCALAR && strcmp(c->text, "true")) {
			emit_put(out, " ");
			emit_shell_word(out, c->text);
		}
	}
}

void write_openrlhf(struct emission *e, struct emit_text *out)
{
	const int64_t nodes = e->plan->nodes > 0 ? e->plan->nodes : 1;

	if (of_ray(e))
		emit_put(out, "python3 -m openrlhf.cli.%s", programs[program_of(e)].program);
	else
		/* several nodes are those of a file, without which it refuses to start (deepspeed/launcher/runner.py) */
		emit_put(out, "deepspeed %s--num_nodes %lld --num_gpus %lld --module openrlhf.cli.%s",
			 nodes > 1 ? "--hostfile \"${HOSTFILE:?file of the nodes and their slots}\" " : "", (long long)nodes,
			 (long long)(e->plan->gpus / nodes), programs[program_of(e)].program);
	options(e->doc.root, "", out);
	emit_put(out, "\n");
}

/* Megatron-LM's arguments: how the plan is laid out, and the model that its config describes. */
#include <stdio.h>
#include <string.h>

#include "ladder/allocator_variable.h"
#include "emit/fills.h"
#include "input/model_ids.h"
#include "oomplan/config.h"

/* How layers lie on the stages of a pipeline. */
static void emit_stages(struct emission *e)
{
	const struct oom_plan *p = e->plan;

	if (p->pp_first)
		emit_rows(e, "", "megatron-lm", "decoder-first-pipeline-num-layers");
	if (p->pp_last)
		emit_rows(e, "", "megatron-lm", "decoder-last-pipeline-num-layers");
	if (p->pp_embedding)
		emit_rows(e, "", "megatron-lm", "account-for-embedding-in-pipeline-split");
	if (p->pp_loss)
		emit_rows(e, "", "megatron-lm", "account-for-loss-in-pipeline-split");
	if (*p->pp_layout)
		emit_rows(e, "", "megatron-lm", "pipeline-model-parallel-layout");
	if (p->mtp_layers)
		emit_rows(e, "", "megatron-lm", "mtp-num-layers");
	if (p->etp > 1)
		emit_rows(e, "", "megatron-lm", "expert-tensor-parallel-size");
}

/* What is kept and moved in fewer bits, and whose layers run. */
static void emit_precisions(struct emission *e)
{
	if (!emit_is(e, "fp8", "none")) {
		char recipe[160];

		emit_set(e, "fp8-format", "hybrid");
		emit_set(e, "fp8-recipe", !strcmp(emit_fact(e, "fp8", recipe), "tensorwise") ? "delayed" : recipe);
	}
	if (emit_is(e, "fp8-param-gather", "true"))
		emit_set(e, "fp8-param-gather", "true");
	/* without a list whole layers are captured, which experts without a fixed capacity cannot be
	 * (core/transformer/transformer_config.py __post_init__) */
	if (emit_is(e, "cuda-graph", "true")) {
		emit_set(e, "cuda-graph-impl", "transformer_engine");
		if (doc_below(e->doc.root, "num-experts"))
			emit_names(e, "cuda-graph-modules", "attn+moe_router");
	}
	if (emit_is(e, "tp-comm-overlap", "true"))
		emit_set(e, "tp-comm-overlap", "true");
	if (emit_is(e, "grad-reduce-in-bf16", "true"))
		emit_set(e, "grad-reduce-in-bf16", "true");
	if (emit_is(e, "defer-embedding-wgrad", "true"))
		emit_set(e, "defer-embedding-wgrad-compute", "true");
	if (!emit_is(e, "transformer-impl", "transformer-engine"))
		emit_rows(e, "", "megatron-lm", "transformer-impl");
}

static const struct fw_megatron_kind *kind_of(const char *type)
{
	const struct fw_megatron_kind *k = fw_megatron_kinds;

	while (k->type && strcmp(k->type, type))
		k++;
	return k->type ? k : NULL;
}

bool oom_emit_megatron_builds(const char *type)
{
	return kind_of(type) != NULL;
}

static const struct {
	const char *argument, *keys;    /* the first of the keys that is there */
} dimensions[] = {
	{"num-layers", "num_hidden_layers"},
	{"hidden-size", "hidden_size"},
	{"ffn-hidden-size", "intermediate_size"},
	{"num-attention-heads", "num_attention_heads"},
	{"kv-channels", "head_dim"},
	{"norm-epsilon", "rms_norm_eps"},
	{"num-experts", "num_local_experts num_experts"},
	{"moe-router-topk", "num_experts_per_tok"},
	{"moe-ffn-hidden-size", "moe_intermediate_size"},
};

/* A number of the config; false: it has none of the keys. */
static bool number_of(const struct oom_keys *config, const char *names, double *out)
{
	for (const char *w = names; *w; w += strspn(w, " ")) {
		const size_t n = strcspn(w, " ");
		const struct oom_key *key;
		char name[64];

		snprintf(name, sizeof(name), "%.*s", (int)n, w);
		key = oom_keys_find(config, name);
		if (key && key->type == OOM_KEY_NUMBER) {
			*out = key->number;
			return true;
		}
		w += n;
	}
	return false;
}

static void set_number(struct emission *e, const char *path, double value)
{
	char buf[40];

	snprintf(buf, sizeof(buf), "%.15g", value);
	emit_set(e, path, buf);
}

/* Positions that turn at another pace than Megatron's 10000, and Llama 3.1's stretch of them (core/models/common/embeddings/
 * rope_utils.py).  A config that has neither leaves both to the reader. */
static void megatron_rotary(struct emission *e, const struct oom_keys *config)
{
	const struct oom_key *kind = oom_keys_find(config, "rope_scaling.rope_type");
	double base = 0, factor = 0;

	if ((number_of(config, "rope_theta rope_parameters.rope_theta", &base)) && base > 0 && (base < 10000 || base > 10000))
		set_number(e, "rotary-base", base);
	kind = kind ? kind : oom_keys_find(config, "rope_parameters.rope_type");
	if (kind && kind->type == OOM_KEY_STRING && !strcmp(kind->string, "llama3") &&
	    number_of(config, "rope_scaling.factor rope_parameters.factor", &factor) && factor > 0) {
		emit_set(e, "use-rope-scaling", "true");
		set_number(e, "rope-scaling-factor", factor);
	}
}

/* One argument after the other of a blank-separated list. */
static void set_flags(struct emission *e, const char *flags)
{
	for (const char *w = flags; *w; w += strspn(w, " ")) {
		char flag[40];
		const size_t n = strcspn(w, " ");

		snprintf(flag, sizeof(flag), "%.*s", (int)n, w);
		emit_set(e, flag, "true");
		w += n;
	}
}

static void megatron_dimensions(struct emission *e, const struct oom_keys *config, const struct fw_megatron_kind *kind)
{
	const struct oom_key *tied = oom_keys_find(config, "tie_word_embeddings");
	double value, heads = 0;

	for (size_t i = 0; i < sizeof(dimensions) / sizeof(dimensions[0]); i++)
		if (number_of(config, dimensions[i].keys, &value))
			set_number(e, dimensions[i].argument, value);
	number_of(config, "num_attention_heads", &heads);
	if (number_of(config, "num_key_value_heads", &value) && value < heads) {
		emit_set(e, "group-query-attention", "true");
		set_number(e, "num-query-groups", value);
	}
	if (!number_of(config, "max_position_embeddings", &value) || value < (double)e->plan->seq_len)
		value = (double)e->plan->seq_len;
	set_number(e, "max-position-embeddings", value);
	set_flags(e, kind->besides);
	if (kind->mark)
		emit_set(e, kind->mark, "true");
	if (!tied || tied->type != OOM_KEY_BOOL || !tied->number)
		emit_set(e, "untie-embeddings-and-output-weights", "true");
}

/* The model, its tokenizer, and what pretrain_gpt.py asks for besides. */
static void megatron_model(struct emission *e)
{
	struct oom_error err = {{0}};
	struct oom_keys config;
	const struct fw_megatron_kind *kind;
	const struct oom_key *type;

	if (!e->config || oom_keys_read_model(&config, e->config, &err))
		return;
	type = oom_keys_find(&config, "model_type");
	kind = type && type->type == OOM_KEY_STRING ? kind_of(type->string) : NULL;
	if (kind) {
		e->described = true;
		emit_set(e, "normalization", "RMSNorm");
		emit_set(e, "position-embedding-type", "rope");
		megatron_dimensions(e, &config, kind);
		megatron_rotary(e, &config);
		emit_set(e, "tokenizer-type", "HuggingFaceTokenizer");
		emit_set(e, "tokenizer-model", e->model);
		emit_set(e, "mock-data", "true");
		emit_set(e, "lr", "1e-4");
		emit_set(e, "train-iters", "100");
	}
	oom_keys_release(&config);
}

/* A launch line where the model is described, options alone where it is not. */
void write_megatron(struct emission *e, struct emit_text *out)
{
	const int64_t nodes = e->plan->nodes > 0 ? e->plan->nodes : 1;

	if (e->described)
		emit_put(out, "%sCUDA_DEVICE_MAX_CONNECTIONS=1 torchrun --nnodes %lld --nproc_per_node %lld %spretrain_gpt.py ",
			 emit_is(e, "allocator", "expandable_segments") ? OOM_ALLOCATOR_EXPANDABLE " "
									: "",
			 (long long)nodes, (long long)(e->plan->gpus / nodes), nodes > 1 ? EMIT_MEETS : "");
	emit_flags(e, out);
}

void fill_megatron(struct emission *e)
{
	char buf[160];

	megatron_model(e);
	emit_rows(e, "", "megatron-lm", "micro-batch-size");
	snprintf(buf, sizeof(buf), "%lld",
		 (long long)(e->plan->micro_batch * e->plan->grad_accum * oom_plan_data_parallel(e->plan)));
	emit_set(e, "global-batch-size", buf);
	emit_rows(e, "", "megatron-lm", "seq-length tensor-model-parallel-size pipeline-model-parallel-size "
		  "context-parallel-size expert-model-parallel-size sequence-parallel bf16 fp16");
	if (e->plan->vpp > 1)
		emit_set(e, "num-virtual-stages-per-pipeline-rank", emit_fact(e, "vpp", buf));
	emit_stages(e);
	emit_precisions(e);
	if (e->plan->tgt_len > 0)
		emit_rows(e, "", "megatron-lm", "decoder-seq-length");
	if (emit_is(e, "engine", "megatron-deepspeed")) {
		emit_set(e, "deepspeed", "true");
		emit_rows(e, "", "megatron-lm", "zero-stage");
	}
	if (e->plan->zero_stage >= 1 && !emit_is(e, "engine", "megatron-deepspeed"))
		emit_set(e, "use-distributed-optimizer", "true");
	if (emit_is(e, "optimizer", "adamw-fused") || emit_is(e, "optimizer", "adamw"))
		emit_set(e, "optimizer", "adam");
	else
		emit_rows(e, "", "megatron-lm", "optimizer");
	if (!emit_is(e, "grad-ckpt", "none"))
		emit_rows(e, "", "megatron-lm", "recompute-granularity");
	if (emit_is(e, "grad-ckpt", "full")) {
		char layers[160];

		emit_set(e, "recompute-method", e->plan->recompute_layers ? "block" : "uniform");
		emit_set(e, "recompute-num-layers",
			 e->plan->recompute_layers ? emit_fact(e, "recompute-num-layers", layers) : "1");
	}
	emit_set(e, "attention-backend", emit_is(e, "attn", "eager") ? "unfused" : "flash");
	if (!emit_is(e, "offload-optimizer", "none"))
		emit_set(e, "optimizer-cpu-offload", "true");
	emit_set(e, "num-workers", emit_fact(e, "dataloader-workers", buf));
}


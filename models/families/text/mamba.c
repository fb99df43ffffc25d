/* Mamba and Falcon Mamba: a selective state space instead of attention, written in PyTorch
 * (selective.c).  transformers takes an associative scan where the step is traced (torch.compile)
 * and a loop over the tokens elsewhere; the scan keeps more.  The knob `scan` says which.
 * Reference: transformers 5.12, models/{mamba,falcon_mamba}/modeling_*.py, slow_forward. */
#include <stdio.h>
#include <string.h>

#include "blocks/mixers.h"

enum {                                          /* extra[] */
	INNER, STATE, RANK, KERNEL, CONV_BIAS, BIAS, FP32_RESIDUAL, FALCON, ASSOCIATIVE
};

static struct oom_selective mixer_of(const struct oom_arch *a)
{
	return (struct oom_selective){.inner = a->extra[INNER],
				      .d_state = a->extra[STATE],
				      .rank = a->extra[RANK],
				      .kernel = a->extra[KERNEL],
				      .heads = 1,
				      .bias = a->extra[BIAS],
				      .conv_bias = a->extra[CONV_BIAS],
				      .normed = a->extra[FALCON],
				      .norm = OOM_NORM_RMS_PLAIN,
				      .act = a->act};
}

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	struct oom_selective m;

	a->norm = OOM_NORM_RMS;
	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	/* MambaConfig computes intermediate_size = int(expand * hidden_size) and ceil(hidden_size /
	 * 16) itself, then takes what the file says */
	a->extra[INNER] = (uint64_t)(oom_read_real(r, "expand", 2) * (double)a->d_model);
	if (oom_read_explicit(r, "intermediate_size"))
		a->extra[INNER] = oom_read_count(r, "intermediate_size", 1);
	a->extra[STATE] = oom_read_count(r, "state_size", 1);
	a->extra[RANK] = (a->d_model + 15) / 16;
	if (oom_read_key(r, "time_step_rank") &&
	    oom_read_key(r, "time_step_rank")->type == OOM_KEY_NUMBER)
		a->extra[RANK] = oom_read_count(r, "time_step_rank", 1);
	a->extra[KERNEL] = oom_read_count(r, "conv_kernel", 1);
	a->extra[CONV_BIAS] = oom_read_bool(r, "use_conv_bias", true);
	a->extra[BIAS] = oom_read_bool(r, "use_bias", false);
	a->extra[FP32_RESIDUAL] = oom_read_bool(r, "residual_in_fp32", true);
	a->extra[ASSOCIATIVE] = oom_read_bool(r, "use_associative_scan", true);
	a->extra[FALCON] = !strcmp(a->model_type, "falcon_mamba");
	a->act = oom_read_act(r, "hidden_act", "silu");
	a->tie = oom_read_bool(r, "tie_word_embeddings", true);
	if (r->status)
		return;
	m = mixer_of(a);
	if (!oom_selective_check(r, &m))
		return;
	snprintf(a->warning, sizeof(a->warning),
		 "%s: counted as it runs without the mamba_ssm and causal_conv1d kernels (--scan: traced or eager); with them training needs far less.",
		 a->model_type);
}

struct layer {
	const struct oom_arch *a;
	enum oom_dtype dt;              /* of the weights */
};

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	struct oom_selective m = mixer_of(a);
	struct oom_val y = oom_norm(t, a->norm, "norm", oom_op_cast(t, oom_keep(x), l->dt), 0);

	(void)i;
	m.associative = a->extra[ASSOCIATIVE] && t->plan->scan == OOM_SCAN_ASSOCIATIVE;
	/* b_c_rms and dt_rms, the weights of norms without any */
	if (a->extra[FALCON]) {
		oom_buffer(t, a->extra[STATE], l->dt);
		oom_buffer(t, a->extra[INNER], l->dt);
	}
	if (a->extra[FP32_RESIDUAL])
		x = oom_op_cast(t, x, OOM_F32);
	return oom_op_add(t, x, oom_selective_mixer(t, &m, y));
}

/* MambaForCausalLM: logits in fp32; those of all tokens but the last made contiguous (as they
 * are in a batch of one). */
static struct oom_val tail(struct oom_tape *t, const struct oom_arch *a, struct oom_val x,
			   struct oom_val embed)
{
	const uint16_t shorter = oom_len_minus(t, t->m_b, 1);
	struct oom_val hidden, logits, out, labels, loss;

	if (t->task != OOM_TASK_CAUSAL_LM || oom_fuses_head(t))
		return oom_causal_tail(t, a, x, embed);
	/* the model's output object keeps the last hidden states */
	hidden = oom_share(t, x);
	logits = oom_op_cast(t, oom_lm_head(t, a, x, embed, "lm_head", false), OOM_F32);
	if (t->no_labels) {
		oom_drop(t, hidden);
		return oom_logits_alone(t, logits);
	}
	out = oom_share(t, logits);
	logits = oom_op_slice(t, logits, shorter, D(a->vocab));
	if (oom_cond_above(t, t->m_b, 1))
		logits = oom_op_copy(t, "shift_logits", logits);
	oom_drop(t, oom_input(t, "labels", t->m_bs, 1, OOM_I64));
	labels = oom_new(t, "shift_labels", shorter, D(1), OOM_I64);
	loss = oom_cross_entropy(t, logits, labels);
	oom_returns_logits(t, out);
	oom_drop(t, hidden);
	return loss;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_val embed, x, first, ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64);
	struct layer l = {.a = a};

	oom_mamba_adapters(t);
	t->scope = "embeddings";
	embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	l.dt = (enum oom_dtype)embed.dt;
	x = oom_op_embedding_param(t, embed, ids, a->vocab, D(a->d_model));
	x = oom_input_grads(t, x);
	first = oom_share(t, x);                /* inputs_embeds, a local of the model */
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, block, &l, x);
	x = oom_norm(t, a->norm, "norm_f", x, 0);
	oom_drop(t, first);
	x = oom_op_cast(t, x, l.dt);
	return tail(t, a, x, embed);
}

static const struct oom_family_type types[] = {
	{"mamba", NULL}, {"falcon_mamba", NULL}, {NULL, NULL},
};

const struct oom_family oom_family_mamba = {
	.name = "mamba",
	.summary = "selective state space, scan written in PyTorch",
	.source = "transformers 5.12 models/mamba/modeling_mamba.py",
	.types = types,
	.lora_targets = "in_proj+x_proj+embeddings+out_proj",
	.parse = parse,
	.step = step,
};

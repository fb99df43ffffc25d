/* Mamba and Falcon Mamba: a selective state space instead of attention, written in PyTorch
 * (selective.c).  transformers takes an associative scan where the step is traced (torch.compile)
 * and a loop over the tokens elsewhere; the scan keeps more.  The knob `scan` says which.
 * Reference: transformers 5.12, models/{mamba,falcon_mamba}/modeling_*.py, slow_forward. */
#include "blocks/decoder.h"
#include "blocks/mixers.h"
#include "config/keys.h"

/* What sets the two types apart. */
struct mamba_kind {
	bool normed;                    /* time steps, B and C by norms without weights */
};
OOM_KIND(mamba, struct mamba_kind);
static const struct oom_family_type mamba_types[] = {
	{"mamba", &(const struct mamba_kind){.normed = false}},
	{"falcon_mamba", &(const struct mamba_kind){.normed = true}}, {NULL, NULL}};

struct mamba {
	uint64_t inner, state, rank, kernel;
	bool conv_bias, bias, fp32_residual, associative;
};
OOM_OWN(mamba, struct mamba);

static const struct oom_key_row mamba_keys[] = {
	MUST(vocab, "vocab_size"), MUST(d_model, "hidden_size"),
	MUST(n_layers, "num_hidden_layers"), MUST_OWN(struct mamba, state, "state_size"),
	MUST_OWN(struct mamba, kernel, "conv_kernel"),
	FLAG_OWN(struct mamba, conv_bias, "use_conv_bias", true),
	FLAG_OWN(struct mamba, bias, "use_bias", false),
	FLAG_OWN(struct mamba, fp32_residual, "residual_in_fp32", true),
	FLAG_OWN(struct mamba, associative, "use_associative_scan", true),
	ACT(act, "hidden_act", "silu"), FLAG(tie, "tie_word_embeddings", true), OOM_KEYS_END};

static struct oom_selective mamba_mixer(const struct oom_arch *a)
{
	const struct mamba *own = mamba_of(a);

	return (struct oom_selective){.inner = own->inner, .d_state = own->state, .rank = own->rank,
				      .kernel = own->kernel, .heads = 1, .bias = own->bias,
				      .conv_bias = own->conv_bias, .normed = mamba_kind_of(a)->normed,
				      .norm = OOM_NORM_RMS_PLAIN, .act = a->act};
}

static void mamba_parse(struct oom_arch *a)
{
	struct mamba *own = mamba_own(a);
	struct oom_reader *r = &a->rd;
	struct oom_selective m;

	/* MambaConfig computes intermediate_size = int(expand * hidden_size) and ceil(hidden_size /
	 * 16) itself, then takes what the file says */
	own->inner = (uint64_t)(oom_read_real(r, "expand", 2) * (double)a->d_model);
	if (oom_read_explicit(r, "intermediate_size"))
		own->inner = oom_read_count(r, "intermediate_size", 1);
	own->rank = oom_read_dt_rank(a, "time_step_rank");
	if (r->status)
		return;
	m = mamba_mixer(a);
	if (!oom_selective_check(r, &m))
		return;
	oom_warn_kernels(a, "the mamba_ssm and causal_conv1d kernels (--scan: traced or eager)", "them");
}

static struct oom_val mamba_block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct oom_decoder_layer *l = ctx;
	const struct oom_arch *a = l->a;
	const struct mamba *own = mamba_of(a);
	struct oom_selective m = mamba_mixer(a);
	struct oom_frame f = {.t = t};
	struct oom_val y = oom_norm(t, a->norm, "norm", oom_op_cast(t, x, l->table), 0);

	(void)i;
	m.associative = own->associative && t->plan->scan == OOM_SCAN_ASSOCIATIVE;
	/* b_c_rms and dt_rms, the weights of norms without any */
	if (m.normed) {
		oom_buffer(t, own->state, l->table);
		oom_buffer(t, own->inner, l->table);
	}
	if (own->fp32_residual)
		x = oom_name(&f, oom_op_cast(t, x, OOM_F32));
	return oom_leave(&f, oom_op_add(t, x, oom_selective_mixer(t, &m, y)));
}

/* MambaForCausalLM: logits in fp32; those of all tokens but the last made contiguous (as they
 * are in a batch of one). */
static struct oom_val mamba_tail(struct oom_tape *t, const struct oom_arch *a, struct oom_val x,
				 struct oom_val embed)
{
	const uint16_t shorter = oom_len_minus(t, t->m_b, 1);
	struct oom_frame f = {.t = t};
	struct oom_val logits, shifted, labels, loss;

	if (t->task != OOM_TASK_CAUSAL_LM || oom_fuses_head(t))
		return oom_causal_tail(t, a, x, embed);
	x = oom_name(&f, x);            /* the model's output object keeps the last hidden states */
	logits = oom_op_cast(t, oom_lm_head(t, a, x, embed, "lm_head", false), OOM_F32);
	if (t->no_labels)
		return oom_logits_alone(t, oom_leave(&f, logits));
	logits = oom_name(&f, logits);
	shifted = oom_op_slice(t, logits, shorter, D(a->vocab));
	if (oom_cond_above(t, t->m_b, 1))
		shifted = oom_op_copy(t, "shift_logits", shifted);
	oom_name(&f, oom_input(t, "labels", t->m_bs, 1, OOM_I64));
	labels = oom_new(t, "shift_labels", shorter, D(1), OOM_I64);
	loss = oom_cross_entropy(t, shifted, labels);
	oom_returns_logits(t, oom_give(&f, logits));
	return oom_leave(&f, loss);
}

static struct oom_val mamba_step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_val embed, x;

	oom_mamba_adapters(t);
	x = oom_decoder_model(t, a, a->family->decoder, &embed);
	return mamba_tail(t, a, oom_op_cast(t, x, embed.dt), embed);
}

const struct oom_family oom_family_mamba = {
	.name = "mamba",
	.summary = "selective state space, scan written in PyTorch",
	.source = "transformers 5.12 models/mamba/modeling_mamba.py",
	.types = mamba_types,
	.norm = OOM_NORM_RMS,
	.lora_targets = "in_proj+x_proj+embeddings+out_proj",
	.keys = mamba_keys,
	.parse = mamba_parse,
	.decoder = OOM_DECODER(.embed = "embeddings", .norm = "norm_f", .bare = true,
			       .block = mamba_block),
	.step = mamba_step,
};

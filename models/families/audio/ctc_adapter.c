/* What add_adapter puts behind an encoder: convolutions with a stride, each gated, so that fewer frames get a letter.  W2v-BERT's layers
 * have attention without positions and a feed-forward besides.  None is checkpointed; those that layerdrop leaves out are counted.
 * Reference: transformers 5.12, models/wav2vec2/modeling_wav2vec2.py Wav2Vec2Adapter, models/wav2vec2_bert/modeling_wav2vec2_bert.py
 * Wav2Vec2BertAdapter. */
#include "ctc.h"

/* A convolution to twice the channels, one half of them the gates of the other; x is a name of f. */
static struct oom_val gated(struct oom_frame *f, const char *name, const struct oom_arch *a, struct oom_val x, uint64_t frames)
{
	const struct ctc *own = ctc_of(a);
	const struct oom_conv1d c = {.in = own->adapter_width, .out = 2 * own->adapter_width, .kernel = own->adapter_kernel, .bias = true};
	const uint16_t rows = oom_tokens_of(f->t, frames);

	x = oom_rename(f, x, oom_op_conv1d(f->t, name, x, &c, rows));
	return oom_rename(f, x, oom_op_gather(f->t, "glu", x, x, rows, (struct oom_dim){own->adapter_width, "output_hidden_size"}));
}

/* Wav2Vec2AdapterLayer */
static struct oom_val convolution(struct oom_tape *t, const struct oom_arch *a, struct oom_val x, uint64_t frames)
{
	struct oom_frame f = {.t = t};

	t->scope = "adapter";
	return oom_leave(&f, gated(&f, "conv", a, x, frames));
}

/* Wav2Vec2BertAdapterLayer */
static struct oom_val attended(struct oom_tape *t, const struct oom_arch *a, struct oom_val x, uint64_t frames)
{
	const struct oom_encdec_kind kind = {.kernel = OOM_ED_MATMUL};
	struct ctc_stack l = {.s = oom_encoder_stack(t, a, &kind), .bias = oom_none(), .frames = frames, .width = ctc_of(a)->adapter_width};
	struct oom_frame f = {.t = t};
	struct oom_val residual, h, weights = oom_none();

	t->scope = "adapter";
	l.s.m_len = oom_length_of(t, frames);
	l.s.m_tokens = oom_tokens_of(t, frames);
	l.s.mask = oom_none();
	residual = oom_name(&f, oom_op_layer_norm(t, "residual_layer_norm", x, 0, true, true));
	residual = gated(&f, "residual_conv", a, residual, frames);
	h = oom_name(&f, oom_op_layer_norm(t, "self_attn_layer_norm", x, 0, true, true));
	h = gated(&f, "self_attn_conv", a, h, frames);
	h.perm = true;                          /* channels before frames: each projection copies it */
	if (t->plan->padding_mask)
		l.s.mask = oom_name(&f, oom_encdec_mask(t, &l.s, false, (enum oom_dtype)h.dt, l.s.m_len, l.s.m_len));
	h = oom_rename(&f, h, oom_ctc_conformer_attention(t, &l, h, &weights));
	oom_name(&f, weights);
	h = oom_rename(&f, h, oom_op_dropout(t, h, ctc_of(a)->conv_dropout));
	h = oom_rename(&f, h, oom_op_add(t, h, residual));
	oom_forget(&f, residual);
	residual = h;
	h = oom_name(&f, oom_op_layer_norm(t, "ffn_layer_norm", h, 0, true, true));
	return oom_leave(&f, oom_op_add(t, oom_ctc_feed_forward(t, a, h, ctc_of(a)->adapter_act), residual));
}

/* The length that a convolution leaves; W2v-BERT pads by half the stride, the others by one. */
static uint64_t left_of(const struct oom_arch *a, uint64_t frames)
{
	const struct ctc *own = ctc_of(a);
	const uint64_t pad = ctc_kind_of(a)->features ? own->adapter_stride / 2 : 1;

	return oom_map_side(frames, own->adapter_kernel, own->adapter_stride, pad, 1);
}

struct oom_val oom_ctc_adapted(struct oom_tape *t, const struct oom_arch *a, struct oom_val x, uint64_t *frames)
{
	const struct ctc *own = ctc_of(a);
	const struct oom_dim out = {own->adapter_width, "output_hidden_size"};
	struct oom_frame f = {.t = t};
	struct oom_val h = oom_none(), part;

	if (own->adapter_ffn) {
		t->scope = t->selection.within = "intermediate_ffn";
		part = oom_name(&f, oom_ctc_feed_forward(t, a, x, OOM_ACT_RELU));       /* expanded_hidden_states */
		x = oom_name(&f, oom_op_add(t, x, oom_op_unary(t, OOM_SCALE, part)));
	}
	t->scope = t->selection.within = "adapter";
	if (out.n != a->d_model) {
		h = oom_name(&f, oom_op_linear(t, "proj", x, out, OOM_BIAS));
		h = oom_rename(&f, h, oom_op_layer_norm(t, "proj_layer_norm", h, 0, true, true));
	}
	t->selection.stack = t->selection.stacks[t->selection.part]++;
	for (uint64_t i = 0; i < own->adapter_layers && !t->status; i++) {
		t->selection.layer = (int64_t)i;
		*frames = left_of(a, *frames);
		if (!*frames)                   /* conv1d: "Kernel size can't be greater than actual input size" */
			oom_tape_impossible(t, OOM_ERR_INVALID, "the adapter's convolutions (add_adapter) are wider than its frames: "
					    "--audio-seconds");
		part = (ctc_kind_of(a)->features ? attended : convolution)(t, a, oom_is_none(h) ? x : h, *frames);
		h = oom_rename(&f, h, part);
	}
	t->selection.layer = -1;
	t->selection.within = NULL;
	h = oom_leave(&f, oom_is_none(h) ? x : h);
	h.perm = !ctc_kind_of(a)->features;     /* channels before frames: the head copies it */
	return h;
}

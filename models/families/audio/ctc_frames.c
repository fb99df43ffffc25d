/* From raw samples to the frames that a speech encoder's layers take: convolutions, of which each is checkpointed as a layer is,
 * SpecAugment, positions by a convolution whose weight is normalised.
 * Reference: transformers 5.12, models/wav2vec2/modeling_wav2vec2.py. */
#include "ctc.h"

/* One convolution, the context of a checkpointed stage. */
struct conv {
	const struct oom_arch *a;
	struct oom_val weight;          /* the first one's, which is made before */
	uint64_t in, length;
};

static struct oom_val conv_weight(struct oom_tape *t, const struct ctc *own, uint64_t j, uint64_t in)
{
	const struct oom_val w = oom_param(t, "weight", own->dims[j] * in, own->kernels[j], 0);

	oom_param_stacked(t, w, in);
	return w;
}

static struct oom_val conv_layer(struct oom_tape *t, const void *ctx, uint32_t j, struct oom_val x)
{
	const struct conv *c = ctx;
	const struct ctc *own = ctc_of(c->a);
	const uint64_t length = oom_map_side(c->length, own->kernels[j], own->strides[j], 0, 1);
	const struct oom_dim out = {own->dims[j] * length, "conv_dim * frames"};
	struct oom_frame f = {.t = t};
	struct oom_map m = {.c = own->dims[j], .h = 1, .w = length};
	struct oom_val w, bias = oom_none();

	t->scope = "conv";
	w = j ? conv_weight(t, own, j, c->in) : c->weight;
	if (own->conv_bias)
		bias = oom_param(t, "bias", 0, own->dims[j], 0);
	m.x = oom_name(&f, oom_op_conv_param(t, x, w, bias, t->m_b, out));
	if (own->layer_norms)
		m = oom_rename_map(&f, m, oom_channel_norm(t, "layer_norm", m));
	else if (!j)
		m = oom_rename_map(&f, m, oom_group_norm(t, "layer_norm", m, m.c));
	m.x = oom_rename(&f, m.x, oom_activation(t, own->conv_act, m.x));
	return oom_leave(&f, m.x);
}

/* `hidden_states.requires_grad = True` where the model trains, for checkpoints: unless freeze_feature_encoder() was called, which
 * is what --freeze feature_extractor stands for. */
static struct oom_val samples(struct oom_tape *t, uint64_t n, struct oom_val weight)
{
	struct oom_val x = oom_pixel_values(t, t->m_b, n);
	int32_t node;

	t->pixels = n;
	t->pixel_mask = t->plan->padding_mask ? n : 0;
	if (!t->grad || !(oom_trains(t, weight) || oom_plan_adapted(t->plan)))
		return x;
	node = oom_node(t, OOM_NODE_LEAF, "samples");
	x = oom_node_out(t, node, 0, x);
	oom_node_save(t, node, x);
	return x;
}

struct oom_val oom_ctc_features(struct oom_tape *t, const struct oom_arch *a, uint64_t n, uint64_t *frames)
{
	const struct ctc *own = ctc_of(a);
	struct conv c = {.a = a, .in = 1, .length = n};
	struct oom_frame f = {.t = t};
	struct oom_val x;
	uint64_t elems;

	t->selection.stack = t->selection.stacks[t->selection.part]++;
	t->selection.layer = 0;                 /* conv_layers.0 */
	t->scope = "conv";
	c.weight = conv_weight(t, own, 0, 1);
	x = oom_name(&f, samples(t, n, c.weight));
	for (uint64_t j = 0; j < own->convs && !t->status; j++) {
		const uint64_t length = oom_map_side(c.length, own->kernels[j], own->strides[j], 0, 1);

		if (!oom_map_elems(t, "conv", own->dims[j], 1, length, &elems))
			break;
		t->selection.layer = (int64_t)j;
		x = oom_rename(&f, x, oom_run_stage(t, j, conv_layer, &c, sizeof(c), x));
		c.in = own->dims[j];
		c.length = length;
	}
	t->selection.layer = -1;
	*frames = c.length;
	return oom_leave(&f, x);
}

struct oom_val oom_ctc_augmented(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct ctc *own = ctc_of(a);
	const bool masks = own->mask_time > 0 || own->mask_features > 0;
	struct oom_frame f = {.t = t};
	struct oom_val vector = oom_none(), places;

	t->scope = ctc_kind_of(a)->base;
	if (masks)
		vector = oom_param(t, "masked_spec_embed", 0, a->d_model, OOM_P_UNUSED * !(own->augments && own->mask_time > 0));
	if (!masks || !own->augments || !t->train)
		return x;
	if (own->mask_time > 0) {
		places = oom_name(&f, oom_new(t, "masked frames", x.mono, D(1), OOM_U8));
		vector = oom_op_cast(t, vector, (enum oom_dtype)x.dt);
		if (oom_wants_grad(t, x) || vector.rg) {
			const int32_t node = oom_node(t, OOM_NODE_CUSTOM, "index_put_");

			oom_node_edge(t, node, x);
			oom_node_edge(t, node, vector);
			oom_node_save(t, node, places);
			x = oom_node_out(t, node, 0, x);
		}
		oom_discard(t, vector);
	}
	if (own->mask_features > 0) {
		/* spread over the frames as a view */
		places = oom_name(&f, oom_new(t, "masked features", t->m_b, (struct oom_dim){x.width, x.text}, OOM_U8));
		x = oom_op_masked_inplace(t, x, places);
	}
	return oom_leave(&f, x);
}

/* The weight of the positions' convolution: g v / |v| for each of the kernel's places, in one operation that keeps v, g and the
 * norms (torch/nn/utils/parametrizations.py weight_norm, _weight_norm_interface). */
static struct oom_val normed_weight(struct oom_tape *t, const struct oom_arch *a)
{
	const struct ctc *own = ctc_of(a);
	const uint64_t d = a->d_model, k = own->pos_kernel, each = d / own->pos_groups;
	const struct oom_val g = oom_param(t, "original0", 1, k, 0), v = oom_param(t, "original1", d * each, k, 0);
	struct oom_val w, norms;
	int32_t node = -1;

	oom_param_stacked(t, v, each);
	if (v.rg || g.rg) {
		node = oom_node(t, OOM_NODE_CUSTOM, "_weight_norm_interface");
		oom_node_edge(t, node, v);
		oom_node_edge(t, node, g);
		oom_node_save(t, node, v);
		oom_node_save(t, node, g);
	}
	w = oom_new(t, "_weight_norm_interface", OOM_MONO_ONE, (struct oom_dim){d * each * k, "weight"}, (enum oom_dtype)v.dt);
	norms = oom_new(t, "norms", OOM_MONO_ONE, (struct oom_dim){k, "num_conv_pos_embeddings"}, OOM_F32);
	if (node >= 0) {
		w = oom_node_out(t, node, 0, w);
		oom_node_save(t, node, norms);
	}
	oom_discard(t, norms);
	return w;
}

/* Data2VecAudioPositionalConvLayer */
static struct oom_val position_layer(struct oom_tape *t, const struct oom_arch *a, struct oom_val x, uint64_t frames)
{
	const struct ctc *own = ctc_of(a);
	const uint64_t d = a->d_model, each = d / own->pos_groups, made = frames + !(own->pos_kernel % 2);
	const uint16_t tokens = x.mono;
	struct oom_frame f = {.t = t};
	struct oom_val w, bias;

	t->scope = "pos_conv_embed.conv";
	w = oom_param(t, "weight", d * each, own->pos_kernel, 0);
	oom_param_stacked(t, w, each);
	bias = oom_param(t, "bias", 0, d, 0);
	x = oom_name(&f, oom_op_conv_param(t, x, w, bias, oom_tokens_of(t, made), D(d)));
	if (made > frames)
		x = oom_rename(&f, x, oom_op_slice(t, x, tokens, D(d)));
	x = oom_rename(&f, x, oom_op_layer_norm(t, "layer_norm", x, 0, false, false));
	return oom_leave(&f, oom_activation(t, own->conv_act, x));
}

static struct oom_val stacked_positions(struct oom_tape *t, const struct oom_arch *a, struct oom_val x, uint64_t frames)
{
	struct oom_frame f = {.t = t};
	struct oom_val h = oom_name(&f, position_layer(t, a, x, frames));

	for (uint64_t i = 1; i < ctc_of(a)->pos_layers && !t->status; i++)
		h = oom_rename(&f, h, position_layer(t, a, h, frames));
	return oom_leave(&f, h);
}

struct oom_val oom_ctc_positions(struct oom_tape *t, const struct oom_arch *a, struct oom_val x, uint64_t frames)
{
	const struct ctc *own = ctc_of(a);
	const struct oom_dim d = D(a->d_model);
	const uint64_t even = !(own->pos_kernel % 2), made = (frames + own->pos_kernel / 2 * 2 - own->pos_kernel) / own->squeeze + 1;
	struct oom_frame f = {.t = t};
	struct oom_val w, bias;

	if (ctc_kind_of(a)->stacked)
		return stacked_positions(t, a, x, frames);
	t->scope = "pos_conv_embed.conv";
	bias = oom_param(t, "bias", 0, a->d_model, 0);
	t->scope = "pos_conv_embed.conv.parametrizations.weight";
	if (own->batch_norm)
		oom_tape_warn(t, "the batch norm before the positions (conv_pos_batch_norm) is not counted");
	w = normed_weight(t, a);
	t->scope = "pos_conv_embed.conv";
	x = oom_name(&f, oom_op_conv_param(t, x, w, bias, oom_tokens_of(t, made), d));
	if (even)
		x = oom_rename(&f, x, oom_op_slice(t, x, oom_tokens_of(t, made - 1), d));
	return oom_leave(&f, oom_activation(t, own->conv_act, x));
}

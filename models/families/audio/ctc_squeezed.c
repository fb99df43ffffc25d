/* SEW: layers see every squeeze_factor-th frame, which a pool and convolutional positions with that stride make of the frames; a
 * linear layer and a view bring them back to as many as there were.
 * Reference: transformers 5.12, models/sew/modeling_sew.py SEWModel, SEWEncoder, SEWUpsampling. */
#include "ops/scan.h"
#include "ctc.h"

struct oom_val oom_ctc_squeezed_input(struct oom_frame *f, const struct oom_arch *a, struct oom_val x)
{
	const struct ctc *own = ctc_of(a);
	struct oom_tape *t = f->t;
	struct oom_val h;

	t->scope = ctc_kind_of(a)->base;
	h = oom_rename(f, x, oom_op_layer_norm(t, "layer_norm", x, 0, true, true));
	if (own->dims[own->convs - 1] != a->d_model)
		h = oom_rename(f, h, oom_op_linear(t, "feature_projection", h, D(a->d_model), OOM_BIAS));
	return oom_op_dropout(t, h, own->proj_dropout);         /* extract_features stays */
}

struct oom_val oom_ctc_squeezed(struct oom_frame *f, const struct oom_arch *a, struct oom_val x, uint64_t frames)
{
	struct oom_tape *t = f->t;
	const uint16_t inside = oom_tokens_of(t, oom_ctc_inside(a, frames));
	struct oom_val positions, pooled;

	if (!oom_ctc_inside(a, frames))         /* avg_pool1d: "Output size is too small" */
		oom_tape_impossible(t, OOM_ERR_INVALID, "%llu frames are fewer than squeeze_factor makes one of: --audio-seconds",
				    (unsigned long long)frames);
	positions = oom_name(f, oom_ctc_positions(t, a, x, frames));
	pooled = oom_name(f, oom_op_gather(t, "avg_pool1d", x, x, inside, D(a->d_model)));
	if (positions.mono != inside)           /* an odd kernel makes one more of a rest */
		positions = oom_op_slice(t, positions, inside, D(a->d_model));
	return oom_op_add(t, pooled, positions);
}

struct oom_val oom_ctc_upsampled(struct oom_tape *t, const struct oom_arch *a, struct oom_val x, uint64_t frames)
{
	const uint64_t squeeze = ctc_of(a)->squeeze, made = oom_ctc_inside(a, frames) * squeeze;
	const struct oom_dim wide = {a->d_model * squeeze, "hidden_size * squeeze_factor"};

	t->scope = "upsample";
	x = oom_activation(t, ctc_of(a)->conv_act, oom_op_linear(t, "projection", x, wide, OOM_BIAS));
	x = oom_op_view(t, x, oom_tokens_of(t, made), D(a->d_model));
	return made < frames ? oom_op_pad(t, x, oom_tokens_of(t, frames), D(a->d_model)) : x;
}

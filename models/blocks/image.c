/* The frame of an image classifier: sizes read, the batch's images, the head. */
#include <math.h>

#include "image.h"

static uint64_t whole(double x)
{
	return x >= 1 && x <= 1048576 && x == floor(x) ? (uint64_t)x : 0;
}

uint64_t oom_read_counts(struct oom_reader *r, const char *key, uint64_t *out, uint64_t max)
{
	uint64_t n = 0;

	while (n < max && (out[n] = whole(oom_read_item_real(r, key, (uint32_t)n, 0))))
		n++;
	if (!n || oom_read_item_real(r, key, (uint32_t)n, -0.5) != -0.5) {
		oom_read_fail(r, "%s must list 1 to %llu counts between 1 and 2^20 (model type %s)",
			      key, (unsigned long long)max, r->family);
		return 0;
	}
	return n;
}

void oom_read_reals(struct oom_reader *r, const char *key, double *out, uint64_t n, double def)
{
	for (uint64_t i = 0; i < n; i++)
		out[i] = oom_read_item_real(r, key, (uint32_t)i, def);
}

void oom_read_image(struct oom_arch *a, uint64_t side)
{
	struct oom_reader *r = &a->rd;
	const struct oom_key *k = oom_read_key(r, "image_size");

	a->default_task = OOM_TASK_IMAGE_CLS;
	if (k && k->type == OOM_KEY_LIST)
		a->image_size = whole(oom_read_item_real(r, "image_size", 0, 0));
	else
		a->image_size = oom_read_count_or(r, "image_size", side);
	a->channels = oom_read_count_or(r, "num_channels", 3);
	if (!a->image_size || a->image_size > 65536)
		oom_read_fail(r, "image_size must lie in 1..65536 (model type %s)", r->family);
	if (!a->channels || a->channels > 65536)
		oom_read_fail(r, "num_channels must lie in 1..65536 (model type %s)", r->family);
}

/* Images arrive in the parameters' type. */
struct oom_val oom_pixel_values(struct oom_tape *t, uint16_t images, uint64_t elements)
{
	return oom_input(t, "pixel_values", images, elements, oom_loaded_dtype(t->plan));
}

struct oom_map oom_pixels(struct oom_tape *t, const struct oom_arch *a)
{
	const uint64_t side = t->plan->image_size ? (uint64_t)t->plan->image_size : a->image_size;
	struct oom_map m = {.c = a->channels, .h = side, .w = side};

	m.x = oom_pixel_values(t, t->m_b, a->channels * side * side);
	return m;
}

struct oom_val oom_image_loss(struct oom_tape *t, const struct oom_arch *a, struct oom_val pooled)
{
	struct oom_frame f = {.t = t};
	struct oom_val x = oom_arg(&f, pooled);

	if (!t->status && t->n_labels)
		x = oom_op_linear(t, "classifier", x, (struct oom_dim){t->n_labels, "num_labels"},
				  OOM_BIAS | OOM_NO_QUANT | OOM_IS_HEAD);
	return oom_leave(&f, oom_cls_loss(t, a, x));
}

struct oom_map oom_declared(struct oom_tape *t, struct oom_map m, uint64_t c)
{
	if (m.c == c || t->status)
		return m;
	oom_tape_warn(t, "the config's channel counts do not fit one another: transformers builds such "
		     "a model but cannot run it");
	m.c = c;
	m.x.width = c * m.h * m.w;
	return m;
}

struct oom_val oom_run_stage(struct oom_tape *t, uint64_t j, oom_block_fn fn, const void *ctx,
			     size_t size, struct oom_val x)
{
	/* an evaluation keeps nothing, but its layers are those of the training pass */
	const bool whole = t->plan->grad_ckpt != OOM_CKPT_NONE;

	if (whole && t->plan->ckpt_every > 1)
		oom_tape_fail(t, OOM_ERR_INVALID,
			      "ckpt-every: this model is checkpointed stage by stage, every one of them; "
			      "every %lldth layer is for stacks of layers",
			      (long long)t->plan->ckpt_every);
	ctx = oom_layer_ctx(t, ctx, size);
	if (!ctx || t->status)
		return x;
	return whole ? oom_layer_alone(t, (uint32_t)j, fn, ctx, x) : fn(t, ctx, (uint32_t)j, x);
}

void oom_no_checkpointing(struct oom_tape *t)
{
	if (t->plan->grad_ckpt != OOM_CKPT_NONE)
		oom_tape_warn(t, "transformers has no gradient checkpointing for this architecture: it "
			     "is modelled without");
}

void oom_read_stages(struct oom_reader *r, const char *key, uint64_t *out, uint64_t max, uint64_t n)
{
	if (oom_read_counts(r, key, out, max) < n)
		oom_read_fail(r, "%s must list a count for each of %llu stages", key,
			      (unsigned long long)n);
}

uint64_t oom_make_divisible(double value, uint64_t divisor, uint64_t least)
{
	uint64_t n = (uint64_t)(value + (double)divisor / 2) / divisor * divisor;

	if (n < least)
		n = least;
	return (double)n < 0.9 * value ? n + divisor : n;
}

struct oom_val oom_shifted_mask(struct oom_tape *t, uint16_t pairs, enum oom_dtype dt)
{
	struct oom_frame f = {.t = t};
	struct oom_val d, c;

	d = oom_name(&f, oom_new(t, "sub", pairs, D(1), dt));
	c = oom_name(&f, oom_new(t, "ne", pairs, D(1), OOM_U8));
	oom_name(&f, oom_new(t, "masked_fill", pairs, D(1), dt));
	oom_forget(&f, c);
	oom_name(&f, oom_new(t, "eq", pairs, D(1), OOM_U8));
	oom_forget(&f, d);
	return oom_leave(&f, oom_new(t, "masked_fill", pairs, D(1), dt));
}

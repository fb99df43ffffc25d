/* Work, counted from a tape.
 *
 * Products count themselves where they are recorded (oom_tape_product, attention's kernels).  What
 * else a step does is read from the rows: one is born of each kernel that writes something new, so
 * that births count launches and their widths the bytes written, each of which is read once by the
 * kernel it is written for.  (Some are read twice, a norm's input; some from the cache.) */
#include "work.h"

#include <string.h>

/* Kernels that write in place or into a view, and so have no row: about one in eight of a Llama
 * layer's (add_, copy_, index_put_), estimated. */
#define IN_PLACE 1.15

/* A tally is numbers alone. */
static void add(struct oom_tally *to, const struct oom_tally *of, double times)
{
	double *a = (double *)to;
	const double *b = (const double *)of;

	for (size_t i = 0; i < sizeof(*to) / sizeof(*a); i++)
		a[i] += times * b[i];
}

void oom_work_alone(struct oom_tape *t, const struct oom_tally *before)
{
	if (t->stream == OOM_STREAM_FWD) {
		add(&t->sums->alone, &t->sums->tally, 1);
		add(&t->sums->alone, before, -1);
	}
	t->sums->tally = *before;
}

void oom_work_forward(struct oom_tape *t)
{
	t->sums->work.pass[0] = t->sums->tally;
	for (size_t i = 0; i < t->n_monos; i++)
		t->sums->flops_fwd[i] = t->sums->tally.flops[i] + t->sums->tally.attn[i];
}

/* Every birth of a stream, as often as its layer is repeated. */
static void count_births(const struct oom_tape *t, const struct oom_stream *s,
			 struct oom_work_sums *w)
{
	double times = 1;

	for (size_t i = 0; i < s->n; i++) {
		const int32_t ev = s->ev[i];
		const struct oom_row *r;

		if (oom_ev_is_unit(ev))
			continue;
		if (ev < 0) {
			const uint32_t k = (uint32_t)(-1 - ev);

			times = k & 1 ? 1 : (double)t->reps[k / 2];
			continue;
		}
		if ((ev & 3) != OOM_EV_ALLOC)
			continue;
		r = &t->rows[ev >> 2];
		if (r->inside)
			continue;
		w->bytes[r->mono] += times * 2 * (double)r->width *
				     oom_dtype_bytes((enum oom_dtype)r->dt);
		if (r->backward && r->cat != OOM_CAT_RECOMPUTE)
			w->launches_back += times;
		else
			w->launches += times;
	}
}

void oom_work_backward(struct oom_tape *t)
{
	struct oom_work_sums *w = &t->sums->work;

	w->pass[1] = t->sums->tally;
	add(&w->pass[1], &t->sums->alone, 1);
	for (size_t i = 0; i < t->n_monos; i++) {
		t->sums->flops_again[i] = w->pass[1].flops[i] + w->pass[1].attn[i] - t->sums->flops_fwd[i];
		w->bytes[i] += w->pass[1].twice[i] + 2 * w->pass[0].twice[i];
	}
	/* the forward's weights are read, and made whole, for their inputs' gradients too */
	w->bytes[OOM_MONO_ONE] += t->sums->tally.weights_read + w->pass[0].weights_read;
	count_births(t, &t->streams[OOM_STREAM_FWD], w);
	count_births(t, &t->streams[OOM_STREAM_BWD], w);
	w->launches *= IN_PLACE;
	w->launches_back *= IN_PLACE;
	for (size_t i = 0; i < t->n_units; i++)
		w->units += t->units[i].mult;
	for (size_t i = 0; i < t->n_params; i++) {
		w->tensors += t->params[i].count;
		w->trained += t->params[i].trainable ? t->params[i].count : 0;
	}
}

/* The backward pass of a fused attention kernel makes its scores again: five products for the
 * forward's two (Dao et al. 2022, arXiv:2205.14135, appendix B). */
#define ATTENTION_BACK 2.5
/* A batched product has two gradients, each as large as itself. */
#define BATCHED_BACK 2

/* Making a 4-bit weight whole is a call of Python in each direction (bitsandbytes/autograd/_functions.py MatMul4Bit: states, shapes and
 * devices are looked at, tensors made, a library called), which takes as long as so many launches beside its kernels': a step over 512
 * tokens of Llama-3.2-1B takes 35 ms longer with 112 such weights on an H100, whose host takes 40 us for a launch
 * (data/h100_steps.csv). */
#define UNPACKING 3

void oom_work_terms(const struct oom_tape *t, struct oom_work_term *term, struct oom_work *fixed)
{
	const struct oom_work_sums *w = &t->sums->work;
	const struct oom_tally *fwd = &w->pass[0], *all = &w->pass[1];

	for (size_t i = 0; i < t->n_monos; i++) {
		const double scores = fwd->attn[i] - fwd->skipped[i], batched = fwd->batched[i],
			     again = all->attn[i] - all->skipped[i] - all->batched[i];

		/* all: the forward and what was computed again; a product's two gradients cost as much
		 * as itself each, frozen weights need but one of them */
		term[i] = (struct oom_work_term){
			.flops = 2 * t->sums->flops_fwd[i] + fwd->trained[i] + fwd->attn[i] + t->sums->flops_again[i],
			.product = all->rated[0][i] + fwd->rated[0][i] + fwd->trained_rated[0][i],
			.fp32 = all->rated[1][i] + fwd->rated[1][i] + fwd->trained_rated[1][i],
			.attention = again + ATTENTION_BACK * (scores - batched),
			.wide = all->wide[i] + ATTENTION_BACK * fwd->wide[i],
			.batched = all->batched[i] + BATCHED_BACK * batched,
			.wide_batched = all->wide_batched[i] + BATCHED_BACK * fwd->wide_batched[i],
			.model = 2 * fwd->flops[i] + fwd->trained[i] + 3 * scores,
			.written = all->written[0][i] + fwd->written[1][i],
			.bytes = w->bytes[i]};
	}
	*fixed = (struct oom_work){.launches = w->launches + UNPACKING * (all->unpackings + fwd->unpackings),
				   .launches_back = w->launches_back,
				   .unpacked = all->unpacked + fwd->unpacked,
				   .depth = all->depth[0] + fwd->depth[1],
				   .units = w->units,
				   .tensors = w->tensors,
				   .trained = w->trained};
}

double oom_work_of(const struct oom_tape *t, const struct oom_work_term *term, const struct oom_work *fixed,
		   const uint64_t *mono, struct oom_work *out)
{
	double flops = 0;

	*out = *fixed;
	for (size_t i = 0; i < t->n_monos; i++) {
		const double n = (double)mono[i];

		flops += n * term[i].flops;
		out->product_flops += n * term[i].product;
		out->fp32_flops += n * term[i].fp32;
		out->attention_flops += n * term[i].attention;
		out->wide_flops += n * term[i].wide;
		out->wide_batched_flops += n * term[i].wide_batched;
		out->batched_flops += n * term[i].batched;
		out->model_flops += n * term[i].model;
		out->written += n * term[i].written;
		out->bytes += n * term[i].bytes;
	}
	return flops;
}

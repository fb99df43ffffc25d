/* Recording: rows, references, nodes, parameters.  See tape.h for what a tape is, layers.c for
 * stacks of layers. */
#include "tape.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "room.h"
#include "round.h"

static void fail(struct oom_tape *t, enum oom_status status, const char *fmt, va_list ap)
{
	t->status = status;
	vsnprintf(t->err.text, sizeof(t->err.text), fmt, ap);
}

void oom_tape_fail(struct oom_tape *t, enum oom_status status, const char *fmt, ...)
{
	va_list ap;

	if (t->status)
		return;
	va_start(ap, fmt);
	fail(t, status, fmt, ap);
	va_end(ap);
}

void oom_tape_warn(struct oom_tape *t, const char *sentence)
{
	for (size_t i = 0; i < OOM_WARNINGS; i++) {
		if (t->warning[i] && strcmp(t->warning[i], sentence))
			continue;
		t->warning[i] = sentence;
		return;
	}
}

void oom_tape_impossible(struct oom_tape *t, enum oom_status status, const char *fmt, ...)
{
	va_list ap;

	if (t->status)
		return;
	va_start(ap, fmt);
	fail(t, status, fmt, ap);
	va_end(ap);
	t->of_config = true;
}

/* ---- memory: every array grows by doubling and is kept for the next recording ---- */

bool oom_tape_grow_now(struct oom_tape *t, void **p, size_t *cap, enum oom_usual usual, size_t need, size_t size)
{
	if (oom_room(p, cap, usual, need, size))
		return true;
	oom_tape_fail(t, OOM_ERR_MEMORY, "out of host memory");
	return false;
}

void oom_tape_release(struct oom_tape *t)
{
	if (!t)
		return;
	free(t->rows);
	free(t->refs);
	free(t->nodes);
	free(t->ctx);
	free(t->sums);
	free(t->params);
	free(t->beside.params);
	free(t->kept.row);
	free(t->again.row);
	free(t->cached.row);
	free(t->routed.row);
	free(t->ckpts);
	free(t->units);
	free(t->layers);
	for (int i = 0; i < OOM_STREAMS; i++)
		free(t->streams[i].ev);
	memset(t, 0, sizeof(*t));
}

void oom_twins_reset(struct oom_tape *t)
{
	for (size_t i = 0; i < OOM_TWINS; i++)
		t->twins[i] = (struct oom_twin){oom_none(), oom_none()};
	t->next_twin = 0;
}

void oom_tape_reset(struct oom_tape *t, const struct oom_arch *arch, const struct oom_plan *plan)
{
	t->arch = arch;
	t->plan = plan;
	t->status = OOM_OK;
	t->err.text[0] = 0;
	t->n_rows = t->n_nodes = t->n_params = t->n_ckpts = t->cursor = t->n_ctx = t->n_held = 0;
	t->stack_node = -1;
	t->n_units = t->unit = 0;
	t->n_layers = t->n_reps = t->n_late = 0;
	t->repeating = false;
	oom_selection_reset(t);
	for (int i = 0; i < OOM_STREAMS; i++)
		t->streams[i].n = 0;
	if (t->sums)
		memset(t->sums, 0, sizeof(*t->sums));
	else
		t->sums = calloc(1, sizeof(*t->sums));
	if (!t->sums)
		oom_tape_fail(t, OOM_ERR_MEMORY, "out of host memory");
	t->buffer_bytes = t->buffer_rounded = 0;
	t->grad = t->train = true;
	memset(t->warning, 0, sizeof(t->warning));
	t->side = oom_none();
	t->n_outputs = t->n_evaluated = 0;
	t->evaluated_logits = false;
	t->again.n = t->kept.n = t->kept.at = t->kept.end = t->cached.n = 0;
	t->prefix = oom_none();
	t->routed = (struct oom_routed){.row = t->routed.row, .cap = t->routed.cap, .first = -1};
	t->no_labels = false;
	t->logits_at = -1;
	t->m_logits = OOM_MONO_ONE;
	t->beside = (struct oom_beside){.params = t->beside.params, .cap = t->beside.cap};
	t->in_bwd = t->recompute = t->stopped = t->packing = t->in_layer = t->dry = t->approximate =
		t->frozen = t->fused = t->depth_asked = t->of_config = false;
	t->shift = OOM_SHIFT_LABELS;
	t->merge = NULL;
	t->behind = (struct oom_behind){.n = 0};
	t->crossed = (struct oom_crossed){.there = false};
	t->pixels = t->pixel_mask = t->token_mask = 0;
	t->token_types = t->typed_mask = t->spread_mask = t->loss_outside = t->outer_head = false;
	t->amp = false;
	t->leaf = (struct oom_leaf){.x = oom_none(), .copy = oom_none()};
	oom_twins_reset(t);
	t->adapter = (struct oom_embedding_adapter){.a = oom_none()};
	t->shared_in = t->shared_out = 0;
	t->amp_region = t->amp_seq = 0;
	t->packs = t->pack_limit = 0;
	t->group = t->n_groups = 0;
	t->mult = 1;
	t->scope = "";
	t->vocab = 0;
	t->stream = OOM_STREAM_FWD;
	oom_sizes_reset(t);
}

/* ---- work ---- */

bool oom_trains(const struct oom_tape *t, struct oom_val w)
{
	return w.node <= -2 ? t->params[-2 - w.node].trainable : t->grad ? w.rg : !oom_plan_adapted(t->plan);
}

static void count(struct oom_tape *t, uint16_t mono, double flops, double tiles, enum oom_dtype dt, bool trains)
{
	struct oom_tally *sum = &t->sums->tally;
	const int wide = dt == OOM_F32 || dt == OOM_F64;

	sum->flops[mono] += flops * t->mult;
	sum->rated[wide][mono] += flops * tiles * t->mult;
	if (!trains)
		return;
	sum->trained[mono] += flops * t->mult;
	sum->trained_rated[wide][mono] += flops * tiles * t->mult;
}

void oom_tape_twice(struct oom_tape *t, struct oom_val x)
{
	t->sums->tally.twice[x.mono] += (double)x.width * oom_dtype_bytes((enum oom_dtype)x.dt) * t->mult;
}

void oom_tape_flops(struct oom_tape *t, uint16_t mono, double flops, enum oom_dtype dt, bool trains)
{
	count(t, mono, flops, 1, dt, trains);
}

/* A tile of a product is at least 64 wide, filled or not (CUTLASS threadblock shapes): an adapter of
 * rank 16 works as long as one of rank 64.
 *
 * Tensor cores load whole 128-byte lines: sides that are no multiples of 64 elements of 16 bits take
 * longer, odd ones the most (NVIDIA, Deep Learning Performance, "Matrix multiplication background",
 * tensor core requirements; Anthony et al. 2024, arXiv:2401.14489, section V).  The factors are estimated: a
 * vocabulary of 50,304 for 50,257 makes GPT-2 124M a fifth to a quarter faster (nanoGPT), whose head is
 * three tenths of its products. */
#define TILE 64

double oom_product_tiles(uint64_t in, uint64_t out, enum oom_dtype dt)
{
	static const struct {
		uint64_t by;
		double times;
	} aligned[] = {{64, 1}, {32, 1.05}, {16, 1.15}, {8, 1.3}, {1, 1.8}};
	const uint64_t thin = in && in < out ? in : out;
	size_t i = 0;

	if (!thin)
		return 1;
	if (thin < TILE)
		return (double)TILE / (double)thin;
	if (dt == OOM_F32 || dt == OOM_F64)
		return 1;
	while (in % aligned[i].by || out % aligned[i].by)
		i++;
	return aligned[i].times;
}

/* What a product's shape costs beside its multiplications (step/time/cards.h: lead, units).  A thin one's tiles are
 * half as wide. */
static void count_shape(struct oom_tape *t, struct oom_val x, uint64_t in, uint64_t out)
{
	const double rows = (double)x.width / (double)(in ? in : 1) * t->mult,
		     calls = t->mult * (in < TILE || out < TILE ? 0.5 : 1);

	t->sums->tally.written[0][x.mono] += rows * (double)out;
	t->sums->tally.written[1][x.mono] += rows * (double)in;
	t->sums->tally.depth[0] += calls * (double)in;
	t->sums->tally.depth[1] += calls * (double)out;
}

/* Weights are read for the forward and for their inputs' gradients: halves of it. */
void oom_tape_moves(struct oom_tape *t, double bytes)
{
	t->sums->tally.weights_read += bytes / 2 * t->mult;
}

/* What it reads of x and writes is in the rows (step/time/work.c). */
void oom_tape_product(struct oom_tape *t, struct oom_val x, uint64_t in, uint64_t out, bool trains)
{
	count(t, x.mono, 2.0 * (double)x.width * (double)out,
	      oom_product_tiles(in, out, (enum oom_dtype)x.dt), (enum oom_dtype)x.dt, trains);
	if (x.dt != OOM_F32 && x.dt != OOM_F64)
		count_shape(t, x, in, out);
	t->sums->tally.weights_read += (double)in * (double)out *
				 oom_dtype_bytes((enum oom_dtype)x.dt) * t->mult;
}

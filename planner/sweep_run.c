/* Running a sweep: blocks of rows are computed by threads and written in order.
 *
 * A block's rows depend on its number alone, so the output is the same for any number of threads and any cut into shards.
 * Memory is a buffer a thread. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sweep.h"

enum { BLOCK = 512, THREADS = 64 };
#define MOST_CELLS 1000000000000u

struct run {
	struct oom_sweep *s;
	const struct oom_sweep_options *o;
	FILE *out;
	uint64_t first, end;            /* cells of this run */
	pthread_mutex_t lock;
	pthread_cond_t turn;
	uint64_t next, written;         /* block to compute; block to write */
	uint64_t rows;
	enum oom_status status;
	struct oom_error err;
};

struct worker {
	struct run *r;
	struct oom_evaluator *ev;
	struct oom_model **model;       /* one of its own for each value of the model axis */
	struct oom_error *refused;
	size_t n_models;
	struct sweep_cell cell;
	struct oom_plan last_plan;      /* of the evaluation in cell: another card alone needs no new one */
	const struct oom_model *last_model;
	enum oom_status last_status;
	char *buf;
	size_t cap;
};

/* ---- cells ---- */

static void set_axis(struct worker *w, const struct sweep_axis *a, uint64_t k)
{
	struct sweep_cell *c = &w->cell;

	switch (a->kind) {
	case AXIS_GPU: c->gpu = &a->gpu[k]; break;
	case AXIS_MODEL: c->model = w->model[k]; break;
	case AXIS_KNOB:
		if (a->knob->kind == OOM_KNOB_REAL)
			*(double *)(void *)oom_plan_field(&c->plan, a->knob) = a->real[k];
		else if (a->knob->kind == OOM_KNOB_TEXT)
			oom_plan_set(&c->plan, a->knob, a->word[k], &c->err);
		else
			*oom_plan_field(&c->plan, a->knob) = a->count[k];
	}
}

/* Cell number n: the last axis runs fastest. */
static void seek(struct worker *w, uint64_t n)
{
	struct oom_sweep *s = w->r->s;

	w->cell.plan = s->base;
	for (size_t i = s->n_axes; i-- > 0;) {
		w->cell.at[i] = n % s->axis[i].n;
		n /= s->axis[i].n;
		set_axis(w, &s->axis[i], w->cell.at[i]);
	}
}

static void step(struct worker *w)
{
	struct oom_sweep *s = w->r->s;

	for (size_t i = s->n_axes; i-- > 0;) {
		w->cell.at[i] = w->cell.at[i] + 1 < s->axis[i].n ? w->cell.at[i] + 1 : 0;
		set_axis(w, &s->axis[i], w->cell.at[i]);
		if (w->cell.at[i])
			return;
	}
}

static const char *why_no_model(const struct worker *w)
{
	for (size_t i = 0; i < w->r->s->n_axes; i++)
		if (w->r->s->axis[i].kind == AXIS_MODEL)
			return w->refused[w->cell.at[i]].text;
	return "no model";
}

static void price(struct worker *w)
{
	struct sweep_cell *c = &w->cell;
	const uint64_t capacity = c->gpu ? c->gpu->capacity_bytes : 0;

	struct oom_plan plan = c->plan;         /* the cell's own stays as the axes made it */

	if (c->gpu && plan.compute_capability <= 0)
		plan.compute_capability = c->gpu->compute_capability;
	c->rungs = 0;
	if (!c->model) {
		c->ok = c->fits = false;
		oom_error_set(&c->err, OOM_ERR_INVALID, "%s", why_no_model(w));
		return;
	}
	if (w->r->o->plan_each && capacity) {
		struct oom_ladder l;

		c->ok = !oom_ladder_walk(w->ev, c->model, &plan, capacity, 0, &l, &c->err);
		c->eval = l.eval;
		c->fits = c->ok && l.fits;
		for (int i = 0; c->ok && i < OOM_RUNGS; i++)
			c->rungs += l.rung[i].outcome == OOM_RUNG_TAKEN;
		return;
	}
	if (w->last_model != c->model || memcmp(&w->last_plan, &plan, sizeof(plan))) {
		w->last_status = oom_evaluate(w->ev, c->model, &plan, OOM_EVAL_FAST, &c->eval, &c->err);
		w->last_plan = plan;
		w->last_model = c->model;
	}
	c->ok = !w->last_status;
	c->fits = c->ok && capacity && c->eval.used_bytes <= oom_budget(capacity, &c->plan);
}

/* ---- threads ---- */

static bool room(struct worker *w, size_t used)
{
	const size_t need = used + sweep_row_room(w->r->s);
	char *q;

	if (need <= w->cap)
		return true;
	q = realloc(w->buf, need * 2);
	if (!q)
		return false;
	w->buf = q;
	w->cap = need * 2;
	return true;
}

/* Rows of one block into the buffer; SIZE_MAX when there is no memory. */
static size_t block(struct worker *w, uint64_t b, uint64_t *rows)
{
	struct run *r = w->r;
	const uint64_t from = r->first + b * BLOCK, to = from + BLOCK < r->end ? from + BLOCK : r->end;
	size_t used = 0;

	*rows = 0;
	seek(w, from);
	for (uint64_t n = from; n < to; n++) {
		if (!room(w, used))
			return SIZE_MAX;
		price(w);
		if (sweep_passes(r->s, &w->cell)) {
			used = (size_t)(sweep_put(r->s, &w->cell, r->o->jsonl, w->buf + used) - w->buf);
			++*rows;
		}
		step(w);
	}
	return used;
}

static void fail(struct run *r, enum oom_status st, const char *text)
{
	if (!r->status)
		r->status = oom_error_set(&r->err, st, "%s", text);
}

static void *work(void *arg)
{
	struct worker *w = arg;
	struct run *r = w->r;
	const uint64_t blocks = (r->end - r->first + BLOCK - 1) / BLOCK;

	for (;;) {
		uint64_t b, rows;
		size_t used;

		pthread_mutex_lock(&r->lock);
		b = r->status || (r->o->stop && *r->o->stop) ? blocks : r->next;
		r->next += b < blocks;
		pthread_mutex_unlock(&r->lock);
		if (b >= blocks)
			return NULL;
		used = block(w, b, &rows);
		pthread_mutex_lock(&r->lock);
		while (r->written != b)
			pthread_cond_wait(&r->turn, &r->lock);
		if (used == SIZE_MAX)
			fail(r, OOM_ERR_MEMORY, "out of host memory");
		else if (!r->status && fwrite(w->buf, 1, used, r->out) != used)
			fail(r, OOM_ERR_IO, "cannot write the output");
		r->rows += rows;
		r->written++;
		if (r->o->progress && (r->written % 64 == 0 || r->written == blocks))
			r->o->progress(r->o->ctx, r->written * BLOCK < r->end - r->first ? r->written * BLOCK : r->end - r->first,
				       r->end - r->first);
		pthread_cond_broadcast(&r->turn);
		pthread_mutex_unlock(&r->lock);
	}
}

static bool open_worker(struct worker *w, struct run *r)
{
	memset(w, 0, sizeof(*w));
	w->r = r;
	w->ev = oom_evaluator_new();
	for (size_t i = 0; i < r->s->n_axes; i++) {
		struct sweep_axis *a = &r->s->axis[i];

		if (a->kind != AXIS_MODEL)
			continue;
		w->n_models = a->n;
		w->model = calloc(a->n, sizeof(*w->model));
		w->refused = calloc(a->n, sizeof(*w->refused));
		if (!w->model || !w->refused)
			return false;
		for (size_t k = 0; k < a->n; k++) {
			w->refused[k] = a->refused[k];
			if (!*a->refused[k].text)
				oom_model_new(&w->model[k], &a->keys[k], &w->refused[k]);
		}
	}
	return w->ev != NULL;
}

static void close_worker(struct worker *w)
{
	for (size_t k = 0; w->model && k < w->n_models; k++)
		oom_model_free(w->model[k]);
	free(w->model);
	free(w->refused);
	free(w->buf);
	oom_evaluator_free(w->ev);
}

static int threads_of(const struct run *r)
{
	const uint64_t blocks = (r->end - r->first + BLOCK - 1) / BLOCK;
	const long cores = sysconf(_SC_NPROCESSORS_ONLN);
	uint64_t n = r->o->threads > 0 ? (uint64_t)r->o->threads : cores > 0 ? (uint64_t)cores : 1;

	n = n < THREADS ? n : THREADS;
	return (int)(n < blocks ? n : blocks ? blocks : 1);
}

static void header(const struct oom_sweep *s, FILE *out)
{
	for (size_t i = 0; i < s->n_columns; i++)
		fprintf(out, "%s%s", i ? "," : "", s->column[i].name);
	putc('\n', out);
}

enum oom_status oom_sweep_run(struct oom_sweep *s, const struct oom_sweep_options *o, FILE *out, uint64_t *rows, struct oom_error *err)
{
	const uint64_t cells = oom_sweep_cells(s);
	struct run r = {.s = s, .o = o, .out = out, .end = cells};
	static const struct oom_error none;
	struct worker *w;
	pthread_t thread[THREADS];
	int n, started = 0;

	if (!cells)
		return oom_error_set(err, OOM_ERR_INVALID, "a sweep needs an axis");
	if (cells > MOST_CELLS)
		return oom_error_set(err, OOM_ERR_LIMIT, "%s%llu cells, about %.0f TB of CSV: more than 10^12 are not written",
				     cells == UINT64_MAX ? "more than " : "", (unsigned long long)cells, (double)cells * 100 / 1e12);
	if (!s->n_columns && oom_sweep_columns(s, NULL, err))
		return err ? OOM_ERR_INVALID : OOM_ERR_INVALID;
	if (o->shards) {
		r.first = (uint64_t)((__uint128_t)cells * (o->shard - 1) / o->shards);
		r.end = (uint64_t)((__uint128_t)cells * o->shard / o->shards);
	}
	r.first = o->skip < r.end - r.first ? r.first + o->skip : r.end;
	r.err = none;
	n = threads_of(&r);
	w = calloc((size_t)n, sizeof(*w));
	if (!w)
		return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	pthread_mutex_init(&r.lock, NULL);
	pthread_cond_init(&r.turn, NULL);
	if (!o->jsonl && o->shard <= 1 && !o->skip)
		header(s, out);
	for (int i = 0; i < n && !r.status; i++)
		if (!open_worker(&w[i], &r))
			fail(&r, OOM_ERR_MEMORY, "out of host memory");
	for (int i = 1; i < n && !r.status; i++)
		started += !pthread_create(&thread[started], NULL, work, &w[i]);
	if (!r.status)
		work(&w[0]);
	for (int i = 0; i < started; i++)
		pthread_join(thread[i], NULL);
	for (int i = 0; i < n; i++)
		close_worker(&w[i]);
	free(w);
	pthread_mutex_destroy(&r.lock);
	pthread_cond_destroy(&r.turn);
	*rows = r.rows;
	return r.status ? oom_error_set(err, r.status, "%s", r.err.text) : OOM_OK;
}

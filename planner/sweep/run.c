/* Running a sweep: blocks of rows are computed by threads and written in order.
 *
 * A block's rows depend on its number alone, so the output is the same for any number of threads
 * and any cut into shards. Finished blocks wait in a ring of buffers for those before them; no
 * thread waits for its turn to write, only for a free buffer.  The ring is all the memory that this takes. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sweep.h"
#include "oomplan/units.h"

/* rows of a block: many where a row takes less than a microsecond, so that threads seldom meet and little is begun
 * anew; few where verdicts or searches make blocks uneven */
enum { MANY_ROWS = 2048, FEW_ROWS = 512 };
enum { THREADS = 64, AHEAD = 3, STACK = 1 << 20 };
#define MOST_CELLS 1000000000000u

struct buffer {
	char *text;
	size_t used, cap;
	uint64_t rows;
	struct oom_sweep_unpriced unpriced;
	bool ready;
};
struct run {
	struct oom_sweep *s;
	const struct oom_sweep_options *o;
	FILE *out;
	uint64_t first, end;            /* cells of this run */
	uint64_t block, blocks;         /* rows of a block; how many there are */
	pthread_mutex_t lock;
	pthread_cond_t room;
	uint64_t next, written;         /* block to compute; block to write */
	bool writing;                   /* somebody empties the ring */
	struct buffer ring[THREADS * AHEAD];
	size_t n_ring;
	uint64_t rows;
	enum oom_status status;
	struct oom_error err;
	struct oom_sweep_unpriced unpriced;
};
struct thread {
	struct run *r;
	struct sweep_worker w;
};

static bool room(struct buffer *b, size_t need)
{
	char *q;

	if (b->used + need <= b->cap)
		return true;
	q = realloc(b->text, (b->used + need) * 3 / 2);
	if (!q)
		return false;
	b->text = q;
	b->cap = (b->used + need) * 3 / 2;
	return true;
}

/* A cell without a price: the fault of its values, or of this process, which ends the run. */
static enum oom_status refused(const struct sweep_cell *c, struct oom_sweep_unpriced *u)
{
	const bool fatal = c->status == OOM_ERR_MEMORY || c->status == OOM_ERR_INTERNAL;

	if (!u->cells++ || fatal)
		u->why = c->err;
	return fatal ? c->status : OOM_OK;
}

/* Rows of one block; what ended it. */
static enum oom_status block(struct thread *t, uint64_t number, struct buffer *b)
{
	struct run *r = t->r;
	const uint64_t from = r->first + number * r->block,
		       to = from + r->block < r->end ? from + r->block : r->end;
	const size_t need = sweep_row_room(r->s);

	b->used = 0;
	b->rows = 0;
	b->unpriced.cells = 0;
	sweep_seek(&t->w, from);
	for (uint64_t n = from; n < to; n++) {
		if (!room(b, need))
			return OOM_ERR_MEMORY;
		sweep_price(&t->w, r->o);
		if (!t->w.cell.ok && refused(&t->w.cell, &b->unpriced))
			return t->w.cell.status;
		if (sweep_passes(r->s, &t->w.cell)) {
			b->used = (size_t)(sweep_put(&t->w, r->o->jsonl, b->text + b->used) -
					   b->text);
			b->rows++;
		}
		sweep_step(&t->w);
	}
	return OOM_OK;
}

static void fail(struct run *r, enum oom_status st, const char *text)
{
	if (!r->status)
		r->status = oom_error_set(&r->err, st, "%s", text);
}

static uint64_t cells_done(const struct run *r)
{
	return r->written * r->block < r->end - r->first ? r->written * r->block : r->end - r->first;
}

/* Writes what is next in the ring as long as there is something.  Called and left with the lock,
 * which is open meanwhile. */
static void empty(struct run *r)
{
	while (!r->writing && r->ring[r->written % r->n_ring].ready) {
		struct buffer *b = &r->ring[r->written % r->n_ring];
		const bool wanted = !r->status;
		bool good;

		r->writing = true;
		pthread_mutex_unlock(&r->lock);
		good = !wanted || fwrite(b->text, 1, b->used, r->out) == b->used;
		pthread_mutex_lock(&r->lock);
		if (!good)
			fail(r, OOM_ERR_IO, "cannot write the output");
		r->writing = b->ready = false;
		r->rows += r->status ? 0 : b->rows;
		if (b->unpriced.cells && !r->unpriced.cells)
			r->unpriced.why = b->unpriced.why;
		r->unpriced.cells += b->unpriced.cells;
		r->written++;
		if (r->o->progress && !r->status &&
		    (r->written % 64 == 0 || r->o->plan_each || r->written == r->blocks))
			r->o->progress(r->o->ctx, cells_done(r), r->end - r->first, r->rows);
		pthread_cond_broadcast(&r->room);
	}
}

static void *work(void *arg)
{
	struct thread *t = arg;
	struct run *r = t->r;
	const struct oom_locale locale = oom_locale_enter();

	pthread_mutex_lock(&r->lock);
	for (;;) {
		uint64_t b;
		enum oom_status st;

		while (!r->status && r->next < r->blocks && r->next >= r->written + r->n_ring)
			pthread_cond_wait(&r->room, &r->lock);
		if (r->status || r->next >= r->blocks || (r->o->stop && *r->o->stop))
			break;
		b = r->next++;
		pthread_mutex_unlock(&r->lock);
		st = block(t, b, &r->ring[b % r->n_ring]);
		pthread_mutex_lock(&r->lock);
		if (st)
			fail(r, st, st == OOM_ERR_INTERNAL ?
					    r->ring[b % r->n_ring].unpriced.why.text :
					    "out of host memory");
		r->ring[b % r->n_ring].ready = true;
		empty(r);
	}
	pthread_cond_broadcast(&r->room);
	pthread_mutex_unlock(&r->lock);
	oom_locale_leave(locale);
	return NULL;
}

static int threads_of(const struct run *r)
{
	const long cores = sysconf(_SC_NPROCESSORS_ONLN);
	uint64_t n = r->o->threads > 0 ? (uint64_t)r->o->threads : cores > 0 ? (uint64_t)cores : 1;

	n = n < THREADS ? n : THREADS;
	return (int)(n < r->blocks ? n : r->blocks ? r->blocks : 1);
}

static void header(const struct oom_sweep *s, FILE *out)
{
	for (size_t i = 0; i < s->n_columns; i++)
		fprintf(out, "%s%s", i ? "," : "", s->column[i].name);
	putc('\n', out);
}

static void all_threads(struct run *r, struct thread *t, int n)
{
	pthread_t id[THREADS];
	pthread_attr_t room;            /* whatever `ulimit -s` was when the program began */
	int started = 0, opened = 0;

	for (; opened < n && !r->status; opened++) {
		t[opened].r = r;
		if (!sweep_worker_init(&t[opened].w, r->s))
			fail(r, OOM_ERR_MEMORY, "out of host memory");
	}
	pthread_attr_init(&room);
	pthread_attr_setstacksize(&room, STACK);
	for (int i = 1; i < n && !r->status; i++)
		started += !pthread_create(&id[started], &room, work, &t[i]);
	pthread_attr_destroy(&room);
	if (!r->status)
		work(&t[0]);
	for (int i = 0; i < started; i++)
		pthread_join(id[i], NULL);
	for (int i = 0; i < opened; i++)
		sweep_worker_release(&t[i].w);
}

/* The cells this run has to write: its shard, less what is written already. */
static void cut(struct run *r, uint64_t cells)
{
	const struct oom_sweep_options *o = r->o;

	r->end = cells;
	if (o->shards) {
		r->first = (uint64_t)((__uint128_t)cells * (o->shard - 1) / o->shards);
		r->end = (uint64_t)((__uint128_t)cells * o->shard / o->shards);
	}
	r->first = o->skip < r->end - r->first ? r->first + o->skip : r->end;
	r->block = r->s->need == SWEEP_PRICE && !o->plan_each ? MANY_ROWS : FEW_ROWS;
	r->blocks = (r->end - r->first + r->block - 1) / r->block;
}

/* What stands in the way of a run. */
static enum oom_status check(struct oom_sweep *s, const struct oom_sweep_options *o, uint64_t cells,
			     struct oom_error *err)
{
	if (!cells)
		return oom_error_set(err, OOM_ERR_INVALID, "a sweep needs an axis");
	if (cells > MOST_CELLS)
		return oom_error_set(err, OOM_ERR_LIMIT,
				     "%s%llu cells, about %.0f TB of CSV: more than 10^12 are not "
				     "written",
				     cells == UINT64_MAX ? "more than " : "",
				     (unsigned long long)cells, (double)cells * 100 / 1e12);
	if (o->plan_each && !oom_sweep_has(s, "gpu") && !s->capacity)
		return oom_error_set(err, OOM_ERR_INVALID,
				     "a plan for each cell needs a card: --gpu NAME");
	return s->n_columns ? OOM_OK : oom_sweep_columns(s, NULL, err);
}

enum oom_status oom_sweep_run(struct oom_sweep *s, const struct oom_sweep_options *o, FILE *out,
			      uint64_t *rows, struct oom_error *err)
{
	const uint64_t cells = oom_sweep_cells(s);
	struct thread *t = NULL;
	struct run *r;
	enum oom_status st = check(s, o, cells, err);
	int n;

	if (st)
		return st;
	sweep_resolve(s, o->plan_each);
	r = calloc(1, sizeof(*r));
	if (r) {
		r->s = s;
		r->o = o;
		r->out = out;
		cut(r, cells);
		n = threads_of(r);
		r->n_ring = (size_t)n * AHEAD;
		t = calloc((size_t)n, sizeof(*t));
	}
	if (!r || !t) {
		free(r);
		return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	}
	st = sweep_make_models(s);
	if (st)
		fail(r, st, "out of host memory");
	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->room, NULL);
	if (!o->jsonl && o->shard <= 1 && !o->skip)
		header(s, out);
	all_threads(r, t, n);
	pthread_mutex_destroy(&r->lock);
	pthread_cond_destroy(&r->room);
	for (size_t i = 0; i < r->n_ring; i++)
		free(r->ring[i].text);
	*rows = r->rows;
	if (o->cells)
		*o->cells = cells_done(r);
	if (o->unpriced)
		*o->unpriced = r->unpriced;
	st = r->status ? oom_error_set(err, r->status, "%s", r->err.text) : OOM_OK;
	free(t);
	free(r);
	return st;
}

enum oom_status oom_sweep_each(struct oom_sweep *s, const struct oom_sweep_options *o,
			       oom_sweep_fn fn, void *ctx, struct oom_error *err)
{
	const uint64_t cells = oom_sweep_cells(s);
	enum oom_status st = check(s, o, cells, err);
	struct sweep_worker *w;

	if (st)
		return st;
	s->need = SWEEP_BYTES;
	st = sweep_make_models(s);
	w = calloc(1, sizeof(*w));
	if (st || !w || !sweep_worker_init(w, s))
		st = oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	if (!st)
		sweep_seek(w, 0);
	for (uint64_t n = 0; !st && n < cells; n++) {
		sweep_price(w, o);
		if (!w->cell.ok && (w->cell.status == OOM_ERR_MEMORY ||
				    w->cell.status == OOM_ERR_INTERNAL)) {
			st = oom_error_set(err, w->cell.status, "%s", w->cell.err.text);
			break;
		}
		fn(ctx, &(struct oom_sweep_cell){
				.at = w->cell.at,
				.ok = w->cell.ok,
				.fits = w->cell.fits,
				.eval = &w->cell.eval,
				.capacity_bytes = w->cell.capacity,
				.plan = w->cell.answer,
				.model = w->cell.model,
				.gpu = w->cell.gpu,
				.error = w->cell.ok ? "" : w->cell.err.text});
		sweep_step(w);
	}
	if (w)
		sweep_worker_release(w);
	free(w);
	return st;
}

/* ---- the axes, for pictures ---- */

bool oom_sweep_axis_at(const struct oom_sweep *s, size_t i, const char **name, uint64_t *n)
{
	if (i >= s->n_axes)
		return false;
	*name = s->axis[i].n_vars == 1 ? s->axis[i].var[0].name : "point";
	*n = s->axis[i].n;
	return true;
}

const char *oom_sweep_value_text(const struct oom_sweep *s, size_t axis, uint64_t k, char *buf,
				 size_t size)
{
	const struct sweep_axis *a = &s->axis[axis];
	const struct sweep_var *v = a->var;
	struct oom_plan p = s->base;
	int64_t value = 0;

	if (a->n_vars != 1 || v->point) {
		snprintf(buf, size, "%llu", (unsigned long long)k + 1);
		return buf;
	}
	for (size_t i = 0; i < v->n_values && v->values[i].from <= k; i++)
		value = v->values[i].start + (int64_t)(k - v->values[i].from) * v->values[i].step;
	if (v->kind != SWEEP_KNOB) {
		snprintf(buf, size, "%s",
			 v->kind == SWEEP_GPU ? s->card[value].name : s->model[value].word);
		return buf;
	}
	if (v->knob->kind == OOM_OPTION_NAMES) {
		snprintf(buf, size, "%s", s->text[value]);
		return buf;
	}
	memcpy((char *)&p + v->knob->offset, &value, sizeof(value));
	return oom_plan_get(&p, v->knob, buf, size);
}

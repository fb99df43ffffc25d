/* A sweep's table on its way to a file: its progress, and what is left of it where it is ended. */
#include <inttypes.h>
#include <signal.h>
#include <time.h>

#include "cli.h"
#include "out.h"
#include "partial.h"
#include "plot.h"
#include "sweep_out.h"
#include "term.h"

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static volatile sig_atomic_t stopped;   /* the signal */

static void on_stop(int sig)
{
	stopped = sig;
}

/* The first signal ends the sweep at a whole row, the second the program. */
static void stop_politely(void)
{
	static const int ends[] = {SIGINT, SIGTERM, SIGHUP};

	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		struct sigaction sa = {.sa_handler = on_stop,
				       .sa_flags = SA_RESETHAND | SA_RESTART},
				 old;

		if (!sigaction(ends[i], NULL, &old) && old.sa_handler != SIG_IGN)
			sigaction(ends[i], &sa, NULL);
	}
}

struct watch {
	double start, shown, noted;
	bool show;
	struct oom_partial *partial;
};

static void progress(void *ctx, uint64_t done, uint64_t all, uint64_t rows)
{
	struct watch *w = ctx;
	const double t = now(), seconds = t - w->start,
		     rate = seconds > 0 ? (double)done / seconds : 0;
	char buf[100];

	if (w->show && (t - w->shown > 0.1 || done == all)) {
		w->shown = t;
		oom_bar(done, all, 24, oom_term_unicode(), buf, sizeof(buf));
		fprintf(stderr, "\r%-24s %3.0f %%  %.*f %srows/s  %.0f s left ", buf,
			100 * (double)done / (double)all, rate < 1e4 ? 0 : 2,
			rate < 1e4 ? rate : rate / 1e6, rate < 1e4 ? "" : "M ",
			rate > 0 ? (double)(all - done) / rate : 0);
		if (done == all)
			fputc('\n', stderr);
	}
	/* what cannot be noted now is noted later; the end says so */
	if (w->partial && t - w->noted > 1) {
		w->noted = t;
		oom_partial_note(w->partial, w->partial->cells + done, w->partial->rows + rows,
				 NULL);
	}
}

/* A table that may be cut short: as much as there is stays, and is continued. */
static enum oom_status run_partial(const struct oom_sweep_table *a, struct oom_sweep *s,
				   struct oom_sweep_options *o, struct watch *w, uint64_t *rows,
				   struct oom_error *err)
{
	static struct oom_partial p;
	static uint64_t cells;          /* as long-lived as what points to it */
	struct oom_error why = {{0}};
	enum oom_status st = oom_partial_open(&p, a->output, oom_sweep_fingerprint(s, o),
					      a->resume, err);

	if (st)
		return st;
	cells = 0;
	stop_politely();
	w->partial = &p;
	o->progress = progress;
	o->skip = p.cells;
	o->cells = &cells;
	o->stop = &stopped;
	st = oom_sweep_run(s, o, p.file, rows, err);
	*rows += p.rows;
	if (!st && !stopped)
		return oom_partial_finish(&p, err);
	if (!st)
		st = oom_partial_note(&p, p.cells + cells, *rows, err);
	oom_partial_leave(&p);
	if (st)
		return oom_error_set(err, st, "%.300s; --resume continues %.150s",
				     (why = *err).text, p.path);
	oom_complain(0, "interrupted: %" PRIu64 " rows in %s; --resume continues it", *rows,
		     p.path);
	signal(stopped, SIG_DFL);
	raise(stopped);
	return OOM_OK;
}

static enum oom_status run_whole(const char *output, struct oom_sweep *s, const struct oom_sweep_options *o,
				 uint64_t *rows, struct oom_error *err)
{
	struct oom_out out;
	enum oom_status st = oom_out_open(&out, output, err);

	if (st)
		return st;
	st = oom_sweep_run(s, o, out.file, rows, err);
	if (!st)
		return oom_out_close(&out, err);
	oom_out_discard(&out);
	return st;
}

enum oom_status oom_sweep_write(const struct oom_sweep_table *t, struct oom_sweep *s,
				const struct oom_sweep_options *options, uint64_t *rows,
				struct oom_error *err)
{
	struct watch w = {.start = now(), .show = t->show};
	struct oom_sweep_options o = *options;

	o.ctx = &w;
	o.progress = w.show ? progress : NULL;
	return t->keep ? run_partial(t, s, &o, &w, rows, err) : run_whole(t->output, s, &o, rows, err);
}

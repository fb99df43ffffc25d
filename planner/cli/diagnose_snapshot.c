/* A PyTorch memory snapshot beside the predicted anatomy. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "diagnose.h"
#include "out.h"
#include "term.h"

bool oom_path_is_snapshot(const char *path)
{
	unsigned char head[3];
	ssize_t n;
	int fd;

	if (!strcmp(path, "-")) {
		/* one byte may be put back: no text begins with this one (in UTF-8 it continues
		 * a letter) */
		const int c = getchar();

		if (c != EOF)
			ungetc(c, stdin);
		return c == 0x80;
	}
	/* without memory of its own: a file whose kind nobody could look at would be read as a text */
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	do
		n = read(fd, head, sizeof(head));
	while (n < 0 && errno == EINTR);
	close(fd);
	return n > 0 && oom_snapshot_is(head, (size_t)n);
}

/* The predicted bytes of the same kind; what a recording cannot tell apart is added up in one
 * place. */
static uint64_t predicted(const struct oom_eval *e, enum oom_held h)
{
	static const struct {
		enum oom_held held;
		enum oom_bucket bucket;
	} pairs[] = {{OOM_HELD_PARAMS, OOM_BUCKET_PARAMS},
		     {OOM_HELD_PARAMS, OOM_BUCKET_BUFFERS},
		     {OOM_HELD_INPUTS, OOM_BUCKET_INPUTS},
		     {OOM_HELD_GRADS, OOM_BUCKET_GRADS},
		     {OOM_HELD_OPT, OOM_BUCKET_OPT},
		     {OOM_HELD_FORWARD, OOM_BUCKET_SAVED},
		     {OOM_HELD_FORWARD, OOM_BUCKET_AMP},
		     {OOM_HELD_LOSS, OOM_BUCKET_LOGITS},
		     {OOM_HELD_RECOMPUTE, OOM_BUCKET_RECOMPUTE},
		     {OOM_HELD_BACKWARD, OOM_BUCKET_TEMP},
		     {OOM_HELD_COMM, OOM_BUCKET_COMM}};
	uint64_t sum = 0;

	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
		if (pairs[i].held == h)
			sum += e->bucket[pairs[i].bucket];
	return sum;
}

static int price(struct oom_job *job, struct oom_eval *e)
{
	struct oom_evaluator *ev;
	struct oom_error err = {{0}};
	struct oom_target t;
	int code = oom_target_open(job, &t, false);

	if (code)
		return code;
	ev = oom_evaluator_new();
	if (!ev || oom_evaluate(ev, t.model, &t.q.plan, OOM_EVAL_BUCKETS, e, &err))
		code = oom_complain(OOM_EXIT_INPUT, "%s", ev ? err.text : "out of host memory");
	oom_evaluator_free(ev);
	oom_target_close(&t);
	return code;
}

/* ---- where they part ---- */

/* The kind whose held and predicted bytes differ most. What a recording cannot tell (older than it, without
 * frames) is set against what the plan has more of. */
static void parting(const struct oom_snapshot *s, const struct oom_eval *e)
{
	enum oom_held worst = OOM_HELD_OTHER;
	uint64_t most = 0;

	for (int h = OOM_HELD_PARAMS; h < OOM_HELD_OTHER; h++) {
		const uint64_t is = s->held[h], plan = predicted(e, (enum oom_held)h),
			       by = is > plan ? is - plan : 0;

		if (by > most) {
			most = by;
			worst = (enum oom_held)h;
		}
	}
	if (most > e->overall_peak / 20)
		printf("they part most in %s: %s more than predicted\n", oom_held_str(worst), oom_gib(most));
	else if (s->peak_bytes > e->overall_peak + e->overall_peak / 20)
		printf("they part by %s, in what the recording cannot name\n",
		       oom_gib(s->peak_bytes - e->overall_peak));
	else if (e->overall_peak > s->peak_bytes + s->peak_bytes / 20)
		printf("less is held than predicted, by %s: the recording ends or begins elsewhere, or other knobs\n",
		       oom_gib(e->overall_peak - s->peak_bytes));
	else
		printf("held and predicted agree to a twentieth\n");
}

/* ---- text ---- */

static void refusal(const struct oom_snapshot *s)
{
	const bool pieces = s->idle_bytes >= s->oom_tried_bytes &&
			    s->largest_idle_bytes < s->oom_tried_bytes;

	printf("\nrefused (event %zu): %s asked, %s free on the card\n", s->oom_event,
	       oom_gib(s->oom_tried_bytes), oom_gib(s->oom_free_bytes));
	if (pieces)
		printf("  %scause: fragmentation%s: %s lie idle in %zu pieces, the largest %s; "
		       "%.0f %% of what is reserved is stranded\n"
		       "  do: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True   [rung 4; playbook "
		       "M8]%s\n",
		       oom_paint(OOM_BAD), oom_paint(OOM_PLAIN), oom_gib(s->idle_bytes), s->n_idle,
		       oom_gib(s->largest_idle_bytes),
		       s->reserved_bytes ? 100 * (double)s->idle_bytes / (double)s->reserved_bytes :
					   0,
		       s->expandable ? " (already in use)" : "");
	else
		printf("  %scause: too_large%s: %s idle in segments do not do\n  do: climb the "
		       "ladder (oomplan plan) if it was training   [playbook M2, M4]\n",
		       oom_paint(OOM_BAD), oom_paint(OOM_PLAIN), oom_gib(s->idle_bytes));
}

static void text(const struct oom_snapshot *s, const struct oom_eval *e)
{
	printf("PyTorch memory snapshot: device %" PRId64 " of %zu, %zu events, %zu segments%s\n",
	       s->device, s->n_devices, s->n_events, s->n_segments,
	       s->expandable ? " (expandable)" : "");
	for (size_t i = 0; s->n_each > 1 && i < s->n_each; i++)
		printf("  device %" PRId64 " held %s at most%s\n", s->each[i].device, oom_gib(s->each[i].peak_bytes),
		       s->each[i].oom ? ", and was refused memory" : "");
	printf("most was held after event %zu: %s in %zu blocks", s->peak_event, oom_gib(s->peak_bytes),
	       s->peak_blocks);
	if (e)
		printf("; predicted %s (%s)", oom_gib(e->overall_peak), oom_phase_str(e->peak_phase));
	printf("\n\n  %-30s %12s%s\n", "what", "held", e ? "    predicted" : "");
	for (int h = 0; h < OOM_HELD_KINDS; h++) {
		const uint64_t plan = e ? predicted(e, (enum oom_held)h) : 0;

		if (!s->held[h] && !plan)
			continue;
		printf("  %-30s %12s", oom_held_str((enum oom_held)h), oom_gib(s->held[h]));
		if (plan)
			printf(" %12s", oom_gib(plan));
		putchar('\n');
	}
	if (e) {
		struct oom_recorded_phases r;

		parting(s, e);
		oom_phases_read(s, &r);
		oom_phases_text(&r, e);
	}
	printf("\nby frame, the innermost of the program's own\n");
	for (size_t i = 0; i < s->n_frames; i++)
		printf("  %12s  %5zu x  %s\n", oom_gib(s->frame[i].bytes), s->frame[i].blocks,
		       oom_shown(s->frame[i].where));
	if (s->n_other_frames)
		printf("  %12s  in %zu frames more\n", oom_gib(s->other_frame_bytes),
		       s->n_other_frames);
	printf("\nwhen it was dumped: %s reserved, %s allocated, %s idle in %zu pieces, the "
	       "largest %s\n",
	       oom_gib(s->reserved_bytes), oom_gib(s->allocated_bytes), oom_gib(s->idle_bytes), s->n_idle,
	       oom_gib(s->largest_idle_bytes));
	if (s->oom)
		refusal(s);
	if (!s->n_events)
		printf("  no events: _record_memory_history() was not on, so this is the state at "
		       "the dump, not at the peak\n");
}

/* ---- JSON ---- */

/* What each device held at most. */
static void devices_json(struct oom_json *j, const struct oom_snapshot *s)
{
	oom_json_array(j, "device_peaks");
	for (size_t i = 0; i < s->n_each; i++) {
		oom_json_object(j, NULL);
		oom_json_int(j, "device", s->each[i].device);
		oom_json_uint(j, "peak_bytes", s->each[i].peak_bytes);
		oom_json_bool(j, "oom", s->each[i].oom);
		oom_json_end(j);
	}
	oom_json_end(j);
}

/* Who held the peak, and the timeline. */
static void lists_json(struct oom_json *j, const struct oom_snapshot *s)
{
	oom_json_array(j, "frames");
	for (size_t i = 0; i < s->n_frames; i++) {
		oom_json_object(j, NULL);
		oom_json_text(j, "where", s->frame[i].where);
		oom_json_text(j, "held", oom_held_column(s->frame[i].held));
		oom_json_uint(j, "bytes", s->frame[i].bytes);
		oom_json_uint(j, "blocks", s->frame[i].blocks);
		oom_json_end(j);
	}
	oom_json_end(j);
	oom_json_array(j, "timeline");
	for (size_t i = 0; i < s->n_points; i++) {
		oom_json_object(j, NULL);
		oom_json_uint(j, "event", s->point[i].event);
		oom_json_uint(j, "bytes", s->point[i].bytes);
		oom_json_end(j);
	}
	oom_json_end(j);
}

/* The request that was refused. */
static void refusal_json(struct oom_json *j, const struct oom_snapshot *s)
{
	if (s->oom) {
		oom_json_object(j, "oom");
		oom_json_uint(j, "event", s->oom_event);
		oom_json_uint(j, "tried_bytes", s->oom_tried_bytes);
		oom_json_uint(j, "free_bytes", s->oom_free_bytes);
		oom_json_end(j);
	} else {
		oom_json_null(j, "oom");
	}
}

static void json(const struct oom_snapshot *s, const struct oom_eval *e)
{
	struct oom_json j = {.out = stdout};
	struct oom_recorded_phases r;

	oom_json_object(&j, NULL);
	oom_json_text(&j, "schema", "oomplan-snapshot/1");
	oom_json_int(&j, "device", s->device);
	oom_json_uint(&j, "devices", s->n_devices);
	devices_json(&j, s);
	oom_json_uint(&j, "events", s->n_events);
	oom_json_uint(&j, "peak_bytes", s->peak_bytes);
	oom_json_uint(&j, "peak_event", s->peak_event);
	oom_json_uint(&j, "peak_blocks", s->peak_blocks);
	oom_json_object(&j, "held");
	for (int h = 0; h < OOM_HELD_KINDS; h++)
		oom_json_uint(&j, oom_held_column((enum oom_held)h), s->held[h]);
	oom_json_end(&j);
	lists_json(&j, s);
	oom_phases_read(s, &r);
	oom_phases_json(&j, &r, e);
	oom_json_uint(&j, "other_frames_bytes", s->other_frame_bytes);
	oom_json_uint(&j, "reserved_bytes", s->reserved_bytes);
	oom_json_uint(&j, "allocated_bytes", s->allocated_bytes);
	oom_json_uint(&j, "idle_bytes", s->idle_bytes);
	oom_json_uint(&j, "idle_blocks", s->n_idle);
	oom_json_uint(&j, "largest_idle_bytes", s->largest_idle_bytes);
	oom_json_uint(&j, "segments", s->n_segments);
	oom_json_bool(&j, "expandable", s->expandable);
	refusal_json(&j, s);
	if (e) {
		oom_json_object(&j, "predicted");
		oom_json_uint(&j, "overall_peak_bytes", e->overall_peak);
		for (int h = 0; h < OOM_HELD_KINDS; h++)
			oom_json_uint(&j, oom_held_column((enum oom_held)h),
				      predicted(e, (enum oom_held)h));
		oom_json_end(&j);
	}
	oom_json_end(&j);
}

static int plot_to(const char *file, const struct oom_snapshot *s, const struct oom_eval *e)
{
	struct oom_error err = {{0}};
	struct oom_out out;

	if (!s->n_points)
		return oom_complain(OOM_EXIT_INPUT, "nothing to draw: the snapshot has no events "
				    "(torch.cuda.memory._record_memory_history() records them)");
	if (!strcmp(file, "-")) {
		oom_timeline_text(s, e);
		return 0;
	}
	if (oom_out_open(&out, file, &err))
		return oom_complain(OOM_EXIT_INPUT, "%s", err.text);
	oom_timeline_svg(out.file, s, e);
	return oom_out_close(&out, &err) ? oom_complain(OOM_EXIT_INPUT, "%s", err.text) : 0;
}

int oom_diagnose_snapshot(struct oom_job *job, const char *path, const char *plot)
{
	struct oom_error err = {{0}};
	struct oom_snapshot s;
	struct oom_eval e;
	/* --from names the model in the run's own file */
	const bool planned = job->model || job->reading;
	int code;

	if (oom_snapshot_read(&s, path, &err))
		return oom_complain(OOM_EXIT_INPUT, "%s", err.text);
	code = planned ? price(job, &e) : 0;
	if (code)
		return code;
	(job->json ? json : text)(&s, planned ? &e : NULL);
	return plot ? plot_to(plot, &s, planned ? &e : NULL) : OOM_EXIT_FITS;
}

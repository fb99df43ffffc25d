/* Between the files that read a log. */
#ifndef OOM_READ_PARTS_H
#define OOM_READ_PARTS_H

#include "run.h"

/* All of a log's first 16 MiB is read for its run; beyond, a part of every block. */
enum { OOM_SCAN_READ_ALL = 16 << 20 };

struct oom_crash_text;
struct oom_scan {
	oom_crash_fn each;
	void *ctx;
	struct oom_crash *last;
	/* the text around the last message that counts, decoded when all is read; behind it room
	 * for the one of each() */
	char *window;
	/* in the block that is searched: the message that counts; NULL: what is around it was copied */
	const char *pending;
	bool unread;                    /* the lines before it were not read for the run */
	const char *begin, *end;        /* the text that is there now */
	size_t window_at, window_size;
	/* in the same block: the end of the latest allocator's message, NULL before */
	const char *behind;
	const struct oom_trigger *trigger;
	bool sized;                     /* that message gives the size of the request */
	uint64_t window_line;
	int64_t rank;                   /* whose it is, where it names one */
	bool ranked;
	uint64_t last_line;             /* of the latest allocator's message */
	struct oom_crash_log *log;
	const char *latest[4];          /* of PyTorch's messages in this block, the oldest first */
	size_t n_latest;
	uint64_t allocated[4];          /* of the latest messages of one process, for a rise */
	size_t n_allocated;
	int64_t process;                /* its rank, or its card */
	struct oom_run_reader run, at_message;
	/* in the block that is searched: up to where lines were read for the run */
	const char *fed;
	uint64_t line;
	uint64_t ranks;                 /* a bit each, modulo 64 */
	struct oom_trigger_index index;
	struct oom_crash_text *kept;    /* what is kept of the text for the run that it gives; NULL: nothing */
	const char *packed;             /* what the file is, if its first bytes are of no text; NULL: a text */
};

/* "[rank3]: ..." at the beginning of at's line; -1: none. */
int64_t oom_scan_rank(const char *begin, const char *at);
/* Ranks that die together, and what a process holds from message to message. */
void oom_scan_note_rank(struct oom_scan *s, int64_t rank, const char *at, const char *to);
void oom_scan_note_growth(struct oom_scan *s, const char *at, const char *to);
/* Reads whole lines for the run, up to the one that "to" lies in. */
void oom_scan_feed(struct oom_scan *s, const char *to, bool message);
/* read_keep.c: n bytes that begin the log, and the window of the message that counts. */
void oom_scan_keep_head(struct oom_scan *s, const char *from, size_t n);
void oom_scan_keep_window(struct oom_scan *s);
/* said.c: where people say that it ended so, and in place of which word; NULL: nobody does. */
/* The words around a message of nobody's speak of the host's memory. */
bool oom_speaks_of_host(const char *begin, const char *at, const char *end);
const struct oom_trigger *oom_said(const char *begin, const char *end, const char **at);

#endif

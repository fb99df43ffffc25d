/* What of a text may say how a run was started: commands, files and calls that people paste among sentences and logs. */
#ifndef OOM_DIAGNOSE_PIECES_H
#define OOM_DIAGNOSE_PIECES_H

#include <stddef.h>
#include <stdint.h>

struct oom_piece {
	const char *name;       /* its suffix is the door it goes through (planner/frameworks/door.c) */
	const char *text;
	size_t size;
	uint64_t first, last;   /* lines of the text */
};
typedef void (*oom_piece_fn)(void *ctx, const struct oom_piece *piece);

enum { OOM_PIECE_MAX = 32 << 10 };
/* Calls take with every piece of [begin, end), whose first line has this number; what a piece points to is valid in the
 * call alone. */
void oom_pieces(const char *begin, const char *end, uint64_t line, oom_piece_fn take, void *ctx);

/* Between the files that cut. */
struct oom_lines {
	const char *from, *to;  /* the line, without its end */
};
struct oom_cut {
	const struct oom_lines *line;
	size_t n;
	uint64_t number;        /* of the first line */
	char *text;             /* OOM_PIECE_MAX bytes and a NUL */
	size_t used, handed;    /* bytes of text; pieces so far */
	oom_piece_fn take;
	void *ctx;
};
void oom_cut_put(struct oom_cut *c, const char *from, const char *to);
/* Hands over what was put, and begins anew. */
void oom_cut_hand(struct oom_cut *c, const char *name, size_t first, size_t last);
void oom_cut_commands(struct oom_cut *c);
void oom_cut_maps(struct oom_cut *c);
void oom_cut_calls(struct oom_cut *c);

#endif

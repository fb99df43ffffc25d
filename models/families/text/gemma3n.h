/* Gemma 3n: what its config says, and the streams that its layers predict and correct. */
#ifndef OOM_GEMMA3N_H
#define OOM_GEMMA3N_H

#include "blocks/decoder.h"

enum { GEMMA3N_WIDTHS = 8, GEMMA3N_STREAMS = 32 };
enum { GEMMA3N_SLIDES = 1, GEMMA3N_SPARSE = 2, GEMMA3N_WIDTH_SHIFT = 2 };       /* of kind[] */

struct gemma3n {
	uint64_t per_layer, ple_vocab;          /* every layer's own embedding */
	uint64_t shared_kv;                     /* last layers without keys of their own */
	uint64_t laurel;                        /* rank */
	uint64_t altup;                         /* streams */
	uint64_t width[GEMMA3N_WIDTHS];             /* feed-forwards', by kind[] >> GEMMA3N_WIDTH_SHIFT */
};
OOM_OWN(gemma3n, struct gemma3n);

/* AltUp (gemma3n_streams.c). */
/* streams @ coefficients + streams */
struct oom_val gemma3n_predict(struct oom_tape *t, const struct oom_arch *a, struct oom_val x);
/* predictions + (activated - predictions[0]) * coefficients */
struct oom_val gemma3n_correct(struct oom_tape *t, const struct oom_arch *a, struct oom_val pred,
			       struct oom_val activated, size_t router);
/* The streams out of the embeddings x; their parts are f's names. */
struct oom_val gemma3n_streams(struct oom_frame *f, const struct oom_arch *a, struct oom_val x);
/* Their mean, back in the first one's magnitude. */
struct oom_val gemma3n_joined(struct oom_tape *t, const struct oom_arch *a, struct oom_val x);

#endif

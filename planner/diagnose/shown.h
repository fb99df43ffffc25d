/* What a text shows of the run that died: its keys as a framework's reader understands them, the model, the card. */
#ifndef OOM_DIAGNOSE_SHOWN_H
#define OOM_DIAGNOSE_SHOWN_H

#include "oomplan/gpu.h"
#include "oomplan/priced.h"
#include "oomplan/reading.h"

/* In the formula of rows that attention makes where it is written out. */
#define OOM_SCORES_FORMULA " s * n_heads"

struct oom_shown {
	struct oom_reading *reading;    /* owned; NULL: no keys that anybody reads */
	uint64_t first, last;           /* the lines that they stand in */
	size_t keys;                    /* how many knobs they set */
	size_t beside;                  /* how many files of engines and launchers are read with them */
	char named[128];                /* the model as the text has it; "": none */
	char model[512];                /* a word for oom_keys_read_model; "": none that is here */
	bool alike;                     /* of its shape by the name alone */
	bool said;                      /* the model stands in a sentence, not in the keys */
	char card[100];                 /* a word for oom_gpu_find; "": none */
};
void oom_shown_read(const struct oom_crash_text *text, const struct oom_crash *c, struct oom_shown *out);
void oom_shown_release(struct oom_shown *s);

/* Between the files that price: the question, and what came of it. */
struct oom_pricing {
	const struct oom_crash *crash;
	const struct oom_shown *shown;
	struct oom_question q;
	struct oom_comparison m;
	struct oom_priced *out;
	bool trains;            /* what died was a training */
	bool gpus_said;
};
/* compare.c: prices the question, which is settled, and finds the request's row; looks for no change. */
enum oom_status oom_compare_request(struct oom_evaluator *ev, struct oom_question *q, const struct oom_crash *c,
				    struct oom_comparison *out, struct oom_error *err);
/* priced_words.c */
void oom_priced_given(struct oom_pricing *p);
void oom_priced_needs(struct oom_pricing *p);
void oom_priced_set(struct oom_pricing *p);
/* priced_levers.c: bits of those that free less than is missing; changes were looked for. */
uint64_t oom_priced_idle(struct oom_pricing *p);
/* priced_weights.c: of what trains nothing, its weights beside the card; in_4: their bytes in 4 bits. */
void oom_priced_weights(struct oom_pricing *p, const struct oom_eval *e, uint64_t in_4);
/* priced_changes.c: searches, where it does not fit. */
void oom_priced_changes(struct oom_pricing *p, struct oom_evaluator *ev);

#endif

/* Inside of struct oom_model. */
#ifndef OOM_MODEL_H
#define OOM_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "config/arch.h"

struct oom_model {
	const struct oom_keys *keys;
	struct oom_keys defaults;       /* of the model type; owned */
	/* "" or "config."; sub_prefix when the language model has a config of its own */
	const char *prefix;
	char sub_prefix[96];
	/* as the config says it; arch.model_type is the one it is read as */
	char type[64];
	char like[160];                 /* the type in messages */
	char note[400];                 /* what an unknown type is counted as; "" for a known one */
	struct oom_arch arch;
	char quantised[300];            /* how its weights are stored, where that is not priced; "" */
	/* what the config says that its weights are stored in: OOM_FP32, OOM_BF16 or OOM_FP16; auto: nothing */
	enum oom_precision stored;
	char unknown[400];              /* keys the type does not have */
	/* what engines with ranks of their own read of it (oom_model_prepare); owned, freed as one
	 * block; NULL: they cannot have it */
	void *launch;
	const struct oom_model *teacher;        /* borrowed; NULL: none */
	/* what an evaluator tells it by, beside its address: another model made there later is another one */
	uint64_t own_print, print;              /* of itself; with its teacher's */
};
/* Sets own_print and print, when all else is read (identity.c). */
void oom_model_identify(struct oom_model *m);
/* Whether *m is the model that was at this address, with this print, when it was looked at. */
static inline bool oom_model_is(const struct oom_model *then, uint64_t print, const struct oom_model *m)
{
	return then == m && print == m->print;
}
/* Fills m->launch; by the table above all rooms (rank_engines.c).  OOM_ERR_MEMORY. */
enum oom_status oom_model_prepare(struct oom_model *m);
/* Fills m->unknown. */
void oom_model_find_unknown(struct oom_model *m);
/* Fills m->defaults for arch.model_type; empty when the table does not have it. */
enum oom_status oom_model_load_defaults(struct oom_model *m, struct oom_error *err);
/* Chooses family and type for a model type that has none, by its keys, and says so in m->note
 * (structure.c). */
enum oom_status oom_model_choose_structure(struct oom_model *m, struct oom_error *err);

/* Fills m->stored (stored.c). */
void oom_model_read_stored(struct oom_model *m);
/* Reads the config's quantization_config (quantised.c). */
void oom_model_read_quantised(struct oom_model *m);

#endif

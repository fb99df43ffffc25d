/* Who fills and spells each format (targets.c).  Private to planner/emit. */
#ifndef OOM_EMIT_FILLS_H
#define OOM_EMIT_FILLS_H

#include "emit/parts.h"

/* How the processes of several nodes find each other: torchrun runs on every node, each of which is told where the first one
 * is (torch/distributed/run.py, c10d). */
#define EMIT_MEETS "--rdzv_backend c10d --rdzv_endpoint \"${HEAD:?address of the first node}:29500\" "

/* objectives.c: one row each; NULL where a framework has none of its own. */
struct emit_objective {
	const char *name;               /* the knob's value */
	const char *trl_command, *trl_config, *trl_key, *trl_value;
	const char *swift_command;      /* beside "sft"; with a type it is "rlhf" */
	const char *swift_type;
	const char *tune_recipe;        /* in place of "finetune" in the names of recipes */
	const char *tune_whole;         /* a recipe of another form */
};
/* The plan's; of one without a row sft's. */
const struct emit_objective *emit_objective(const struct emission *e);
const struct emit_objective *emit_trl_objective(const struct emission *e);

/* transformers.c */
void fill_deepspeed(struct emission *e);
void fill_trl(struct emission *e);
void fill_trainer(struct emission *e);
void fill_python(struct emission *e);
void fill_accelerate(struct emission *e);
void write_trl(struct emission *e, struct emit_text *out);
void write_trl_command(struct emission *e, struct emit_text *out);
/* TRL's command for the plan's objective; NULL: no command starts that. */
const char *trl_command(const struct emission *e);
/* DeepSpeed's map below a prefix; transformers' arguments. */
void deepspeed_config(struct emission *e, const char *prefix);
void training_arguments(struct emission *e);
/* recipes.c */
void fill_axolotl(struct emission *e);
void write_axolotl(struct emission *e, struct emit_text *out);
void fill_llamafactory(struct emission *e);
void write_llamafactory(struct emission *e, struct emit_text *out);
/* ms_swift.c */
void fill_ms_swift(struct emission *e);
void write_ms_swift(struct emission *e, struct emit_text *out);
/* pretraining.c */
void fill_torchtune(struct emission *e);
void write_torchtune(struct emission *e, struct emit_text *out);
void fill_torchtitan(struct emission *e);
/* litgpt.c */
void fill_litgpt(struct emission *e);
void write_litgpt(struct emission *e, struct emit_text *out);
/* composer.c */
void fill_llm_foundry(struct emission *e);
void write_llm_foundry(struct emission *e, struct emit_text *out);
/* openrlhf.c */
void fill_openrlhf(struct emission *e);
void write_openrlhf(struct emission *e, struct emit_text *out);
/* verl.c */
void fill_verl(struct emission *e);
void write_verl(struct emission *e, struct emit_text *out);
/* megatron.c */
void fill_megatron(struct emission *e);
void write_megatron(struct emission *e, struct emit_text *out);
/* launch.c */
void write_torchrun(struct emission *e, struct emit_text *out);
void write_slurm(struct emission *e, struct emit_text *out);
void write_skypilot(struct emission *e, struct emit_text *out);
void write_dstack(struct emission *e, struct emit_text *out);

#endif

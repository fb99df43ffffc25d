/* The losses that objectives.c lists.  Each gets the model's own loss (absent where the model got no labels) and its
 * logits, which it consumes, and returns the loss; where the objective calls all models itself both are absent. */
#ifndef OOM_LOSSES_H
#define OOM_LOSSES_H

#include "step/objectives.h"

typedef struct oom_val oom_loss_fn(struct oom_tape *t, const struct oom_arch *a, struct oom_val loss, struct oom_val logits);

/* losses_of_pairs.c */
oom_loss_fn oom_loss_dpo, oom_loss_kto, oom_loss_orpo, oom_loss_reward;
/* losses_online.c */
oom_loss_fn oom_loss_grpo, oom_loss_ppo, oom_loss_ppo_apart, oom_loss_online_dpo, oom_loss_xpo;
/* losses_of_teachers.c */
oom_loss_fn oom_loss_gkd, oom_loss_distill;
/* losses_of_texts.c */
oom_loss_fn oom_loss_contrastive;
/* losses_of_heads.c */
oom_loss_fn oom_loss_medusa;

#endif

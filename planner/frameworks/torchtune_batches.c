/* What torchtune's recipes recompute, and the batches of its validation and of PPO. */
#include <string.h>

#include "torchtune.h"

/* One word for layers as a whole or operator by operator; beside enable_activation_checkpointing the recipe does
 * neither. */
void torchtune_checkpoints(struct fw_part *p)
{
	const char *mode = fw_text(p, "ac_mode"), *option = fw_text(p, "ac_option");
	int64_t every;

	if (!*mode)
		return;
	if (fw_on(p, "enable_activation_checkpointing") || !strcmp(mode, "none")) {
		fw_set(p, "grad-ckpt", "none", "ac_mode", RECIPES "/full_finetune_distributed.py _setup_model");
		return;
	}
	if (!strcmp(mode, "selective") && !strcmp(option, "op")) {
		fw_set(p, "grad-ckpt", "selective-op", "ac_mode", "torchtune/training/activations.py");
		return;
	}
	fw_set(p, "grad-ckpt", "full", "ac_mode", "torchtune/training/activations.py");
	if (!strcmp(mode, "selective") && doc_whole(fw_key(p, "ac_option"), &every) && every > 1 && every < 1000)
		fw_set_whole(p, "ckpt-every", every, "ac_option", "torchtune/training/activations.py");
}

/* PPO samples batch_size prompts and steps on ppo_batch_size of them, in as many pieces as gradients are added up. */
void torchtune_batches(struct fw_part *p)
{
	const int64_t step = fw_whole_or(p, "ppo_batch_size", 0), pieces = fw_whole_or(p, "gradient_accumulation_steps", 1);

	if (fw_fact_is(p, "objective", "ppo") && step && step % pieces == 0)
		fw_set_whole(p, "micro-batch", step / pieces, "ppo_batch_size", RECIPES "/ppo_full_finetune_single_device.py");
	else if (step)
		fw_unmodelled(p, "ppo_batch_size", "batches of the update are not priced by it: give --micro-batch");
	if (fw_whole_or(p, "run_val_every_n_steps", 0))
		fw_set_whole(p, "eval-batch", fw_whole_or(p, "batch_size_val", fw_whole_or(p, "batch_size", 1)),
			     fw_key(p, "batch_size_val") ? "batch_size_val" : "run_val_every_n_steps", RECIPES "/lora_finetune_single_device.py");
}

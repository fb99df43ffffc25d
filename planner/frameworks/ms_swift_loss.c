/* ms-swift's losses of its own. */
#include <string.h>

#include "ms_swift.h"

/* Weights other than 0 and 1 on tokens of the loss, as for an agent's calls (swift/loss_scale/mapping.py and its files). */
static bool weighs_tokens(const struct fw_part *p)
{
	static const char *const kinds[] = {"react", "hermes", "qwen", "agentflan", "alpha_umi", "alpha-umi"};
	const char *scale = fw_text(p, "loss_scale");

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (strstr(scale, kinds[i]))
			return true;
	return false;
}

/* The trainer takes the labels from the model where the loss is its own, and Liger's fused one, which the model computes,
 * does not take effect: logits are there as without it (swift/trainers/seq2seq_trainer.py compute_loss, which warns of it). */
void ms_swift_own_loss(struct fw_part *p)
{
	static const char *const switches[] = {"enable_dft_loss", "enable_channel_loss"};
	const char *key = *fw_text(p, "loss_type") ? "loss_type" : weighs_tokens(p) ? "loss_scale" : NULL;
	int64_t n;

	for (size_t i = 0; i < 2; i++)
		key = fw_on(p, switches[i]) ? switches[i] : key;
	if (doc_whole(fw_key(p, "sequence_parallel_size"), &n) && n > 1)
		key = "sequence_parallel_size";
	if (key && fw_on(p, "use_liger_kernel") && (fw_fact_is(p, "objective", "sft") || fw_fact_is(p, "objective", "pretrain")))
		fw_set(p, "loss", "plain", key, "swift/trainers/seq2seq_trainer.py: Liger's loss does not take effect");
}

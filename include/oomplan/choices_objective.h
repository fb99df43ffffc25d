/* Choices of what a step is a step of: its objective, what that compares the model with, who gives its answers, and how
 * the loss is computed; in the form of choices.h. */
#ifndef OOMPLAN_CHOICES_OBJECTIVE_H
#define OOMPLAN_CHOICES_OBJECTIVE_H

#ifdef __cplusplus
extern "C" {
#endif

#define OOM_LOSSES(X) \
	X(OOM_LOSS_PLAIN, "plain", "logits upcast to fp32, current transformers", "false", \
	  "transformers loss_utils.py", OOM_EXACT) \
	X(OOM_LOSS_FUSED, "fused", "chunked linear + cross-entropy (Liger)", "true liger", \
	  "use_liger_kernel=True", OOM_EXACT) \
	X(OOM_LOSS_SLICED, "sliced", \
	  "logits upcast, then sliced and copied once more, transformers before 4.46", "", \
	  "modeling_llama.py 4.45", OOM_EXACT) \
	X(OOM_LOSS_SLICED_APART, "sliced-apart", \
	  "the same beside the model's own 16-bit logits, transformers 4.46 to 4.48", "", \
	  "loss/loss_utils.py 4.48 ForCausalLMLoss", OOM_EXACT) \
	X(OOM_LOSS_SLICED_IN_PLACE, "sliced-in-place", \
	  "as sliced, and the gradient takes the copy's place: in-place kernels before transformers 4.46", "", \
	  "linkedin/Liger-Kernel transformers/monkey_patch.py; modeling_llama.py 4.45", OOM_EXACT) \
	X(OOM_LOSS_APART_IN_PLACE, "sliced-apart-in-place", \
	  "as sliced-apart, and the gradient takes the copy's place: transformers 4.46 to 4.48", "", \
	  "linkedin/Liger-Kernel transformers/monkey_patch.py; loss/loss_utils.py 4.48", OOM_EXACT) \
	X(OOM_LOSS_SFT, "sft", \
	  "plain, and the entropy and accuracy of tokens that TRL's SFTTrainer logs (loss_type=nll)", \
	  "nll", "trl/trainer/sft_trainer.py compute_loss", OOM_EXACT) \
	X(OOM_LOSS_CHUNKED_NLL, "chunked-nll", \
	  "head and loss in chunks of 256 tokens, computed again in backward: TRL's default", \
	  "chunked_nll", "trl/trainer/sft_trainer.py _chunked_cross_entropy_loss", OOM_EXACT) \
	X(OOM_LOSS_CUT, "cut", \
	  "cut cross-entropy: no logits at all (Apple's, axolotl's plugin)", \
	  "cce cut-cross-entropy cut_cross_entropy", "apple/ml-cross-entropy cut_cross_entropy/cce.py", \
	  OOM_EXACT) \
	X(OOM_LOSS_CHUNKED, "chunked", \
	  "head and loss in 8 parts of a sequence, which keep their log-probabilities (torchtune)", \
	  "linear-cross-entropy", "torchtune modules/loss/cross_entropy_loss.py", OOM_EXACT) \
	X(OOM_LOSS_TILED, "tiled", \
	  "head, loss and its backward part by part within the forward (torchtitan's chunked loss: 8 parts; " \
	  "DeepSpeed ALST)", \
	  "alst tiled-logits", "torchtitan components/loss.py, deepspeed runtime/sequence_parallel/ulysses_sp.py", \
	  OOM_EXACT) \
	X(OOM_LOSS_IN_PLACE, "in-place", \
	  "whole logits in fp32, whose gradient takes their place (Liger's cross_entropy)", \
	  "inplace liger-cross-entropy", "linkedin/Liger-Kernel ops/cross_entropy.py", OOM_EXACT) \
	X(OOM_LOSS_COMPILED, "compiled", \
	  "whole logits and one compiled kernel: neither an fp32 copy nor log-probabilities (estimated)", \
	  "", "torchtune and torchtitan compile the loss; torch/_inductor", OOM_EXACT) \
	X(OOM_LOSS_FLASH, "flash", \
	  "whole logits in their own type and their gradient, no fp32 copy (flash-attn's CrossEntropyLoss, " \
	  "llm-foundry's fused_crossentropy)", \
	  "fused-crossentropy fused_crossentropy xentropy flash-cross-entropy", \
	  "flash_attn/ops/triton/cross_entropy.py", OOM_EXACT) \
	X(OOM_LOSS_OUTSIDE, "outside", \
	  "F.cross_entropy, or log_softmax of preferences, in the training loop, on an fp32 copy of the logits: torch.compile does not " \
	  "reach it", \
	  "", "torchtitan before April 2025, components/loss.py; llamafactory/train/trainer_utils.py get_batch_logps", OOM_EXACT) \
	X(OOM_LOSS_OWN_TYPE, "own-type", \
	  "F.cross_entropy, or log_softmax of preferences, in the training loop, on the logits as they are (under autocast: on an " \
	  "fp32 copy)", \
	  "", "litgpt; lightning-thunder benchmarks/benchmark_litgpt.py; trl/trainer/dpo_trainer.py before 0.15", OOM_EXACT) \
	X(OOM_LOSS_PARTS, "parts", \
	  "head in parts of 128 tokens, whose logits all become fp32 and wait for one backward (litgpt's LoRA)", \
	  "", "litgpt finetune/lora.py fit(), utils.py chunked_cross_entropy; Fabric's Precision.convert_output", OOM_EXACT)

/* What a step is a step of.  Pairs: two rows per sample.  The classes say what turning to them does. */
#define OOM_METHODS(X) \
	X(OOM_METHOD_SFT, "sft", "next tokens, or the task's labels: one model, one loss", \
	  "pt pretrain", "transformers Trainer, TRL SFTTrainer", OOM_SCIENCE) \
	X(OOM_METHOD_DPO, "dpo", "pairs against a reference (DPO, IPO and kin)", \
	  "ipo sigmoid hinge kto_pair", "trl/trainer/dpo_trainer.py", OOM_SCIENCE) \
	X(OOM_METHOD_ORPO, "orpo", "pairs and the likelihood of the better half, no reference", "", \
	  "trl/experimental/orpo/orpo_trainer.py", OOM_SCIENCE) \
	X(OOM_METHOD_CPO, "cpo", "pairs and the likelihood of the better half, no reference", "", \
	  "trl/experimental/cpo/cpo_trainer.py", OOM_SCIENCE) \
	X(OOM_METHOD_SIMPO, "simpo", "pairs alone, no reference", "", \
	  "trl/experimental/cpo/cpo_trainer.py loss_type=simpo, cpo_alpha=0", OOM_SCIENCE) \
	X(OOM_METHOD_KTO, "kto", "single answers, good or bad, against a reference (KTO and kin)", \
	  "apo_zero_unpaired bco", "trl/trainer/kto_trainer.py", OOM_SCIENCE) \
	X(OOM_METHOD_REWARD, "reward", "pairs, one number each: a reward model", "rm", \
	  "trl/trainer/reward_trainer.py", OOM_SCIENCE) \
	X(OOM_METHOD_GRPO, "grpo", \
	  "completions weighed against their group (GRPO, DAPO, RLOO and kin), and their generation", \
	  "gspo dapo rloo reinforce dr_grpo bnpo cispo sapo", "trl/trainer/grpo_trainer.py", OOM_SCIENCE) \
	X(OOM_METHOD_DISTILL, "distill", \
	  "labels, and the distance from a teacher's logits over the whole vocabulary (--teacher)", \
	  "kd", "torch/nn/functional.py kl_div", OOM_SCIENCE) \
	X(OOM_METHOD_GKD, "gkd", \
	  "the student's own answers, its and a teacher's whole distributions compared (--teacher)", \
	  "", "trl/experimental/gkd/gkd_trainer.py", OOM_SCIENCE) \
	X(OOM_METHOD_CONTRASTIVE, "contrastive", \
	  "texts that belong together against all others of the batch (MultipleNegativesRanking, InfoNCE): --texts", \
	  "mnrl infonce", "sentence_transformers/losses/MultipleNegativesRankingLoss.py", OOM_SCIENCE) \
	X(OOM_METHOD_PPO, "ppo", \
	  "policy and critic trained together, a reference and a reward model beside them, the scores of all rollouts " \
	  "of a step and their generation: TRL's PPOTrainer", \
	  "", "trl/experimental/ppo/ppo_trainer.py", OOM_SCIENCE) \
	X(OOM_METHOD_ONLINE_DPO, "online-dpo", \
	  "two answers of the model to every prompt, ranked by a reward model of its kind, against a reference (estimated)", \
	  "onlinedpo", "trl/experimental/online_dpo/online_dpo_trainer.py", OOM_SCIENCE) \
	X(OOM_METHOD_XPO, "xpo", \
	  "the model's answer and its reference's to every prompt, ranked likewise (estimated)", \
	  "", "trl/experimental/xpo/xpo_trainer.py", OOM_SCIENCE) \
	X(OOM_METHOD_NASH_MD, "nash-md", \
	  "the model's answer against one of its mixture with the reference, ranked likewise (estimated)", \
	  "nash", "trl/experimental/nash_md/nash_md_trainer.py", OOM_SCIENCE) \
	X(OOM_METHOD_MEDUSA, "medusa", \
	  "heads for the tokens after the next, over a frozen model: --medusa-heads (estimated)", \
	  "", "FasterDecoding/Medusa medusa/train/train_legacy.py", OOM_SCIENCE) \
	X(OOM_METHOD_PPO_APART, "ppo-apart", \
	  "policy and critic trained one after the other, a reference and a reward model of their size beside them " \
	  "(estimated): OpenRLHF's train_ppo, without the rollouts", \
	  "", "openrlhf/cli/train_ppo.py, openrlhf/trainer/ppo_trainer.py training_step", OOM_SCIENCE)

#define OOM_REFERENCES(X) \
	X(OOM_REF_AUTO, "auto", \
	  "what the library does: a second model, or with adapters the model without them; none " \
	  "where the objective has none (GRPO: beta 0)", "", "trl/trainer/dpo_trainer.py", OOM_EXACT) \
	X(OOM_REF_MODEL, "model", "a second, frozen model beside the trained one", "ref_model", \
	  "trl/trainer/dpo_trainer.py ref_model", OOM_EXACT) \
	X(OOM_REF_ADAPTER, "adapter", "the trained model with its adapters switched off", "", \
	  "peft disable_adapter", OOM_EXACT) \
	X(OOM_REF_NONE, "none", "nothing: no comparison, or one computed before the training", \
	  "precomputed", "trl/trainer/dpo_config.py precompute_ref_log_probs", OOM_EXACT)

#define OOM_ROLLOUTS(X) \
	X(OOM_ROLLOUTS_AUTO, "auto", "the model itself, unless an engine has a share of the card", "", \
	  "trl/trainer/grpo_config.py use_vllm", OOM_EXACT) \
	X(OOM_ROLLOUTS_GENERATE, "generate", \
	  "the trained model within the step: transformers' generate and its cache of keys and values", "hf false", \
	  "transformers generation/utils.py", OOM_EXACT) \
	X(OOM_ROLLOUTS_ENGINE, "engine", \
	  "vLLM or SGLang: on other cards, or on this one with --vllm-gpu-memory-utilization", \
	  "vllm sglang elsewhere server true", "trl/generation/vllm_generation.py", OOM_EXACT)

/* Bits of the objectives whose trainers take log-probabilities of given answers from logits that the model returns. */
#define OOM_METHODS_OF_PREFERENCES \
	(1u << OOM_METHOD_DPO | 1u << OOM_METHOD_ORPO | 1u << OOM_METHOD_CPO | 1u << OOM_METHOD_SIMPO | 1u << OOM_METHOD_KTO)

#ifdef __cplusplus
}
#endif

#endif

/* What a text calls things where no message gives them: the card's size and number in a title, the learner by its method, what
 * was counted by hand. Texts of our own in the form of public threads (named per row); the expectations come from the
 * arithmetic or the source beside them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "crash_wants.h"
#include "oomplan/diagnose.h"

#define NEW(tried, total, free, held, idle) "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate " tried ". GPU 0 has a total capacity of " total " of which " free \
					    " is free. Of the allocated memory " held " is allocated by PyTorch, and " idle " is reserved by PyTorch but unallocated.\n"

static const struct crash_want want[] = {
	/* ---- the card, in somebody's words ---- */
	{"yarn#49", "OOM on two 80GB GPUs\naccelerate launch own_finetune.py --model own/Model-7B --max-train-steps 1000\n", 1,
	 "deepspeed=", "per_device_train_batch_size", "x 16 bytes (weights, gradients, AdamW's states) = 104.3 GiB a card: its 80.00 GiB do", "7e9 x 16 bytes"},
	{"own", "OOM on two 80GB GPUs\naccelerate launch own_finetune.py --model own/Model-3B --max-train-steps 1000\n", 6,
	 "", "deepspeed=", NULL, "3e9 x 16 bytes are 44.7 GiB"},
	{"own", "OOM on my machine with 64GB of RAM and one GPU\naccelerate launch own_finetune.py --model own/Model-7B --max-train-steps 1000\n", 6,
	 "per_device_train_batch_size", "fsdp=", NULL, "the size is the host's, and of the card's nothing is said"},
	{"ms-swift#3504", "full parameters, on 48G A6000s\nNPROC_PER_NODE=4 swift sft --model own/Model-7B --train_type full --per_device_train_batch_size 1 --deepspeed zero3\ntorch.OutOfMemoryError: CUDA out of memory.\n", 1,
	 "offload_optimizer", NULL, "among 4 cards = 26.1 GiB of this one's 48.00", "7e9 x 16 / 4 bytes"},
	{"LlamaFactory#5553", "A100 80G *4 sft full own-72B OOM\ntorchrun src/train.py --deepspeed own/ds_z3_config.json --stage sft --model_name_or_path own/Model-72B --finetuning_type full --per_device_train_batch_size 1 --bf16\ntorch.cuda.OutOfMemoryError: CUDA out of memory.\n", 6,
	 "offload_optimizer", "max_split", "72 B parameters, by the model's name, x 16 bytes (weights, gradients, AdamW's states) = 268.2 GiB a card: its 80.00 GiB do", "72e9 x 16 / 4 bytes; the cards are counted behind their name"},
	{"accelerate#1103", "Loading own-176B on 4x80GB A100 GPUs and 400GB+ CPU RAM fails.\nmodel = AutoModelForCausalLM.from_pretrained(own, device_map=\"auto\", load_in_8bit=True, max_memory={0: '31GB', 'cpu': '400GB'})\n" NEW("784.00 MiB", "79.17 GiB", "317.81 MiB", "77.93 GiB", "1.00 MiB"), 1,
	 "4 bits", "the card that was meant", NULL, "400 GB of RAM are no card"},
	/* ---- what it is that learns ---- */
	{"minimind#845", "python train_agent.py, python train_grpo.py\nEpoch:[1/1](1/19994), Reward:-1.8744, KL:-0.0003\n" NEW("954.00 MiB", "23.51 GiB", "402.38 MiB", "20.91 GiB", "1.02 GiB"), 2,
	 "max_completion_length", "environments", NULL, "GRPO scores answers of a language model (arXiv:2402.03300)"},
	{"unsloth#1624", "OOMs after training for ~120+ steps, a 7b model, Unsloth GRPOTrainer, and it only OOMs after a while\n", 1,
	 "max_seq_length", NULL, NULL, "what fitted for so long has become longer"},
	{"trl#3678", "OOM when training own-0.6B by the GRPO trainer on 20G\nlogits = model(input_ids=ids, attention_mask=mask).logits\n", 2,
	 "max_completion_length", "if it was not training", NULL, "its method says that it trains, on PyTorch"},
	{"DiffSynth-Studio#411", "When I use Lora to fine tune own-T2V-14B with 720p videos on 8 * H100:\n" NEW("1.30 GiB", "94.99 GiB", "861.06 MiB", "85.75 GiB", "3.97 GiB"), 2,
	 "gradient_checkpointing", "enable_model_cpu_offload", "adapters (LoRA)", "who fine-tunes trains"},
	/* ---- what its own numbers and names say ---- */
	{"LlamaFactory#3259", "deepspeed src/train_bash.py --deepspeed own/ds_z3_offload_config.json --stage sft --cutoff_len 32768 --model_name_or_path Qwen/Qwen1.5-32B-Chat --finetuning_type full --per_device_train_batch_size 1 --bf16\n" NEW("18.57 GiB", "79.35 GiB", "9.14 GiB", "66.00 GiB", "2.00 GiB"), 1,
	 "enable_liger_kernel", NULL, "32768 x 152064 words of the vocabulary, by the model's name, x 4 bytes = 18.57 GiB", "32768 x 152064 x 4 bytes"},
	{"LlamaFactory#1595", "OOM when it evaluates while it trains (LLaMA-Factory)\npreds_host = logits if preds_host is None else nested_concat(preds_host, logits, padding_index=-100)\n", 1,
	 "eval_accumulation_steps", NULL, NULL, "the code stands behind the words"},
	{"open-r1#506", "accelerate launch --config_file=own/zero3.yaml src/open_r1/sft.py --model_name_or_path own-1.5B --max_seq_length 16384 --per_device_train_batch_size 16\nout of memory\n", 6,
	 "--per_device_train_batch_size 16 -> 8", "deepspeed=ds_config", NULL, "accelerate's file has the stage in its name"},
};

static void test_called(void **state)
{
	(void)state;
	crash_all_met(want, sizeof(want) / sizeof(want[0]));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {cmocka_unit_test(test_called)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

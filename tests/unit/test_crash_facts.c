/* What an answer makes of facts that stand in no message: a shape told by options, a host that the log shows full, options
 * that only a training has, a run that grew. Texts of our own in the form of public threads (named per row), the
 * expectations written from the arithmetic beside them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "crash_wants.h"
#include "oomplan/diagnose.h"

#define AT(file, function, code) "  File \"" file "\", line 7, in " function "\n    " code "\n"
#define TRACE "Traceback (most recent call last):\n"
#define OLD(tried, total, held, free, reserved) "RuntimeError: CUDA out of memory. Tried to allocate " tried " (GPU 0; " total " total capacity; " held " already allocated; " free " free; " reserved " reserved in total by PyTorch)\n"
#define KILLED "[launch.py:428:sigkill_handler] Killing subprocess 4242\n[launch.py:434:sigkill_handler] exits with return code = -9\n"
#define SLURM "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=77.0. Some of your processes may have been killed by the cgroup out-of-memory handler.\n"
#define MEGATRON TRACE AT("/w/Megatron-LM/pretrain_gpt.py", "<module>", "pretrain(") AT("/w/Megatron-LM/megatron/core/tensor_parallel/layers.py", "forward", "out = self._forward_impl(")

static const struct crash_want want[] = {
	/* ---- the shape that options give ---- */
	{"Megatron-LM#818", "  --num-layers 32\n  --hidden-size 4096\n  --ffn-hidden-size 14336\n  --num-attention-heads 32\n  --swiglu\n  --seq-length 8192\nand now I get `CUDA out of memory`:\n" MEGATRON, 1,
	 "--tensor-model-parallel-size", "micro-batch", "7.78 B parameters, by the model's shape, x 16 bytes (weights, gradients, AdamW's states) = 116.0 GiB", "32 x (4 x 4096^2 + 3 x 4096 x 14336) = 7.78e9"},
	{"own", "  --num-layers 32\n  --hidden-size 4096\n  --num-attention-heads 32\n  --num-query-groups 8\n  --swiglu --ffn-hidden-size 14336\n  --vocab-size 128256 --untie-embeddings-and-output-weights\nand now I get `CUDA out of memory`:\n" MEGATRON, 1,
	 "--tensor-model-parallel-size", NULL, "8.03 B parameters, by the model's shape", "keys and values of a quarter: 32 x (2.5 x 4096^2 + 3 x 4096 x 14336) + 2 x 128256 x 4096"},
	{"own", "  --num-layers 32\n  --hidden-size 4096\n  --tensor-model-parallel-size ${TP}\nand now I get `CUDA out of memory`:\n" MEGATRON, 1,
	 "--micro-batch-size", NULL, "the line that led to it", "divided among nobody knows how many"},
	{"own", "  --num-layers 12\n  --hidden-size 768\nand now I get `CUDA out of memory`:\n" MEGATRON, 1,
	 "--micro-batch-size", NULL, "the line that led to it", "85 M parameters fit every card"},
	{"nanoGPT#391", "So I tried {'dim': 4096, 'multiple_of': 256, 'n_heads': 32, 'n_layers': 32, 'norm_eps': 1e-05, 'vocab_size': -1}\n" TRACE AT("/content/llama2.c/train.py", "<module>", "scaler.scale(loss).backward()")
			  "RuntimeError: CUDA out of memory. Tried to allocate 172.00 MiB (GPU 0; 39.56 GiB total capacity; 37.80 GiB already allocated; 52.56 MiB free; 38.13 GiB reserved in total by PyTorch)\n", 1,
	 "FSDP", "smaller images", "6.44 B parameters, by the model's shape, x 16 bytes (weights, gradients, AdamW's states) = 96.0 GiB a card", "32 x (4 x 4096^2 + 3 x 4096 x 10922): no batch is small enough"},
	{"nanotron#161", "out of memory for continuing pretraining llama3-8B\nI use the following setting to train the model but I got the OOO with 8 GPUs. I tried HF accelerate with deepspeed zero-1 and it worked well previously:\nmodel:\n  dtype: bfloat16\n  model_config:\n    hidden_size: 4096\noptimizer:\n  clip_grad: 1.0\n", 1, "FSDP", NULL, "119.2 GiB before any activation", "8e9 x 16 bytes; who pretrains trains all"},
	/* ---- what the text says would do ---- */
	{"OpenRLHF#1013", "Task was killed due to the node running low on memory (ray oom)\n\xe5\xa6\x82\xe6\x9e\x9c\xe4\xbf\x9d\xe7\x95\x99--vllm_enable_sleep\xe5\xb0\xb1\xe4\xbc\x9a\xe6\x8a\xa5ray oom\xef\xbc\x8c\xe5\xa6\x82\xe6\x9e\x9c\xe5\x8e\xbb\xe6\x8e\x89\xe5\xb0\xb1\xe5\x8f\xaf\xe4\xbb\xa5\xe6\xad\xa3\xe5\xb8\xb8\xe8\xb7\x91\n"
			  "python -m openrlhf.cli.train_ppo_ray --vllm_enable_sleep\n", 1,
	 "leave out --vllm_enable_sleep", NULL, NULL, "kept it dies, left out it runs normally"},
	{"own", "training own.py: it works fine on the other card with --amp but not here\n" OLD("256.00 MiB", "14.56 GiB", "13.30 GiB", "230.50 MiB", "13.65 GiB"), 6, "", "the text itself says", NULL, "what works is elsewhere, and before the option"},
	{"own", "{\"num_hidden_layers\": 32, \"hidden_size\": 4096, \"intermediate_size\": 1e300, \"vocab_size\": 1e308}\npython train.py --gradient_accumulation_steps 4\n" OLD("256.00 MiB", "79.15 GiB", "78.30 GiB", "30.50 MiB", "78.65 GiB"), 1,
	 "micro-batch", "LoRA", NULL, "no model's numbers"},
	/* ---- the host ---- */
	{"dolly#111", "`deepspeed training/own.py  --per-device-train-batch-size 2 --input-model /home/m/pythia-2.8b --deepspeed config/ds_z3_bf16_config.json`\n[utils.py:831:see_memory_usage] Before initializing optimizer states\n"
		      "[utils.py:832:see_memory_usage] MA 0.13 GB         Max_MA 0.13 GB         CA 0.63 GB         Max_CA 1 GB\n[utils.py:840:see_memory_usage] CPU Virtual Memory:  used = 29.71 GB, percent = 95.3%\n" KILLED, 2,
	 "more than 42 GiB", "fewer ranks", "29.71 of the host's 31.2 GiB (95.3 %) were in use", "2.8e9 x 16 bytes are 41.7 GiB, 29.71 / 0.953 are 31.2; one process has nobody to wait for"},
	{"own", "`deepspeed own.py --input-model m/pythia-1b --deepspeed z3.json`\n[utils.py:832:see_memory_usage] MA 0.13 GB         Max_MA 0.13 GB         CA 0.63 GB         Max_CA 1 GB\n"
		"[utils.py:840:see_memory_usage] CPU Virtual Memory:  used = 29.71 GB, percent = 11.8%\n" KILLED, 2,
	 "", "a host with more than", "29.71 of the host's 251.8 GiB (11.8 %)", "16 GB of states fit a host of 252: it is something else"},
	{"K-Net#30", "training runs, but after several epochs I always get\n" SLURM "#SBATCH --mem 200G\n", 1,
	 "DataLoader workers", "if a model was being loaded", "steps went through before it", "what it starts with fitted: a higher limit only puts it off"},
	{"DrivoR#35", "training with Ray + PyTorch. After running for about 24 hours, the container was terminated due to **OOMKill (Exit Code 137)**\n> **Exit Code**: 137 (= 128 + 9, i.e., SIGKILL)\n> **Memory Limit**: 1000Gi\n", 2,
	 "Memory Limit 1000Gi", "if a model was being loaded", "steps went through before it", "a day went by: what it starts with fitted"},
	{"own", "training own.py\n" SLURM "#SBATCH --mem 200G\n", 1, "--mem 200G", NULL, NULL, "nothing says that it ran before"},
	{"transformers#10722", TRACE AT("/l/transformers/trainer.py", "_maybe_log_save_evaluate", "metrics = self.evaluate()") AT("/l/transformers/trainer.py", "prediction_loop", "preds_gatherer = DistributedTensorGatherer(world_size, num_examples)")
			       "numpy.core._exceptions.MemoryError: Unable to allocate 2.77 TiB for an array with shape (200704, 77, 49408) and data type float32\n", 1,
	 "prediction_loss_only", "eval_accumulation_steps", NULL, "outputs are on the host already: they are too many, not in the wrong place"},
	{"SGNet#16", "CPU RAM usage increasing for every epoch\nI've been trying to train your model, but I always get OOM errors. I reduced the batch size from 128 to 16 and the number of workers from 8 to 2.\n"
		      "After step 216/2701 in epoch 1, the code simply starts to consume approximately 6 MB of memory per iteration until I run out of memory.\n", 1,
	 "see who grows", "batch size 128", "it was seen to grow", "the title says whose memory, the text how it filled"},
	{"own", "GPU memory usage increasing for every epoch\nI always get OOM errors in training.\n", 6, "", "see who grows", NULL, "it is the card's"},
	{"own", "Training a ResNet. There is no memory leak that I can see.\nRuntimeError: DataLoader worker (pid 1234) is killed by signal: Killed.\n", 6, "DataLoader workers", "see who grows", NULL, "nobody saw it grow"},
	{"own", "Notes: fixed a memory leak in 1.2.\nRuntimeError: DataLoader worker (pid 1234) is killed by signal: Killed.\n", 6, "DataLoader workers", "see who grows", NULL, "one of long ago"},
	{"own", "Memory usage increases while it loads the data, then it stays flat.\nRuntimeError: DataLoader worker (pid 1234) is killed by signal: Killed.\n", 6, "DataLoader workers", "see who grows", NULL, "what is loaded is no growth"},
	{"GLASS#62", "epoch:0 loss:1.74e+00 pt:83.15 svd:0 sample:400 IAUC:72.42\nepoch:2 loss:1.54e+00 pt:92.95 svd:0 sample:400 IAUC:75.48\nrun.sh: line 4:  8156 Killed                  python main.py\n", 3,
	 "see who grows", "if a model was being loaded", "steps went through before it", "two epochs did"},
	{"Open-Sora#173", "\xe8\xae\xad\xe7\xbb\x83\xe6\x97\xb6\xe5\x86\x85\xe5\xad\x98\xe9\x80\x90\xe6\xb8\x90\xe5\x8f\x98\xe5\xa4\xa7\nRuntimeError: DataLoader worker (pid 39) is killed by signal: Killed.\n", 1,
	 "see who grows", NULL, "it was seen to grow", "the title: memory grows by and by in training"},
	/* ---- what only a training is told ---- */
	{"DeepSpeed#3208", "deepspeed --num_gpus 1 main.py --gradient_accumulation_steps 8 --lora_dim 128 --zero_stage 0\n" OLD("256.00 MiB", "14.56 GiB", "13.30 GiB", "230.50 MiB", "13.65 GiB"), 6,
	 "recompute activations", "if it was not training", NULL, "nobody accumulates gradients who has none"},
	{"own", "python own.py --num_beams 8\n" OLD("256.00 MiB", "14.56 GiB", "13.30 GiB", "230.50 MiB", "13.65 GiB"), 6, "if it was training", NULL, NULL, "no such option"},
	/* ---- others on the card, and a model that fills it alone ---- */
	{"instructlab#2666", "training the own/granite-7b-lab model\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 238.00 MiB. GPU 0 has a total capacity of 22.05 GiB of which 10.81 MiB is free. Process 43 has 4.97 GiB memory in use. "
			     "Including non-PyTorch memory, this process has 17.05 GiB memory in use. Of the allocated memory 15.43 GiB is allocated by PyTorch, and 1.07 GiB is reserved by PyTorch but unallocated.\n", 2,
	 "LoRA", "to fit beside them", "104.3 GiB a card", "7e9 x 8 bytes are 52 GiB: without the others it does not fit either"},
	{"ms-swift#5943", "training own/gemma-3-27b-it\n[rank15]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.63 GiB. GPU 7 has a total capacity of 79.11 GiB of which 2.61 GiB is free. "
			  "Of the allocated memory 48.15 GiB is allocated by PyTorch, and 3.49 GiB is reserved by PyTorch but unallocated.\n", 1,
	 "to fit beside them", "LoRA", NULL, "27e9 x 2 bytes are 50.3 GiB, which the card would hold: 48.15 are a part of them"},
	{"LTX-2#57", "accelerate launch with num_processes=4 on 2 H100 GPUs, training a LoRA\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 30.00 MiB. GPU 0 has a total capacity of 79.10 GiB of which 15.19 MiB is free. "
		     "Process 16 has 20.84 GiB memory in use. Process 17 has 20.33 GiB memory in use. Process 18 has 18.94 GiB memory in use. Process 19 has 18.94 GiB memory in use. "
		     "Of the allocated memory 19.60 GiB is allocated by PyTorch, and 225.59 MiB is reserved by PyTorch but unallocated.\n", 1,
	 "--num_processes", "nvidia-smi", "4 processes hold about as much as one another there, 18.9 GiB", "nobody else holds 19 GiB four times over"},
	{"kohya_ss#3300", "sdxl_train.py, Dreambooth\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 14.00 MiB. GPU 0 has a total capacity of 39.56 GiB of which 896.00 KiB is free. "
			  "Of the allocated memory 37.77 GiB is allocated by PyTorch, and 1.28 GiB is reserved by PyTorch but unallocated.\nsteps:   0% 0/2300 [00:01<?, ?it/s]\n", 1,
	 "8bit", NULL, "38.7 GiB of this one's 39.56, whatever the batch: 0.8 GiB are left", "2.6e9 x 16 bytes fit, and nothing beside them"},
	{"axolotl#998", "QLoRa Fine Tuning Mixtral 8x7b on 2x24GB, load_in_4bit: true, adapter: qlora\ntorch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacty of 24.00 GiB of which 0 bytes is free. "
			"Of the allocated memory 23.01 GiB is allocated by PyTorch, and 121.23 MiB is reserved by PyTorch but unallocated.\n" TRACE AT("/h/axolotl/src/axolotl/cli/train.py", "<module>", "fire.Fire(do_cli)") AT("/h/axolotl/src/axolotl/train.py", "train", "trainer.train(resume_from_checkpoint=r)"), 1,
	 "bnb_4bit_quant_storage", NULL, "23.1 GiB in 4 bits with their scales, of this card's 24.00", "46.7e9 x 0.53 bytes / 2^30"},
	{"LlamaFactory#1936", "llama-2-13b\n    --deepspeed ds_z3_config.json --finetuning_type lora --model_name_or_path own/llama-2-13b\n" TRACE AT("/l/transformers/trainer.py", "_move_model_to_device", "model = model.to(device)") AT("/l/torch/nn/modules/module.py", "to", "return self._apply(convert)")
			      OLD("136.00 MiB", "23.65 GiB", "21.51 GiB", "93.81 MiB", "21.52 GiB"), 1,
	 "see that ZeRO-3 is at work", NULL, NULL, "13e9 x 2 bytes are 24.2 GiB, most of which lie on the card"},
	{"LlamaFactory#7532", "zero3-offload strategy to train a model of 236B\n  File \"/l/deepspeed/runtime/zero/stage3.py\", line 947, in _optimizer_step\ntorch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.39 GiB. GPU 1 has a total capacity of 79.32 GiB of which 2.40 GiB is free. "
			      "Of the allocated memory 73.28 GiB is allocated by PyTorch, and 1.59 GiB is reserved by PyTorch but unallocated.\n    self._optimizer_step(sub_group_id)\n", 1,
	 "sub_group_size", NULL, NULL, "the step over one group of parameters"},
	/* ---- states that are read ---- */
	{"Megatron-LM#1509", "if run with --no-load-optim, it is ok, memory usage is about 60%. But with load optim, it is oom\nMegatron-LM\nRuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`\n", 2,
	 "--ckpt-fully-parallel-load", "micro-batch", "states read from a checkpoint", "the text itself says what is in the way"},
	{"own", "With --no-load-optim the job works fine, with the states it is oom\nMegatron-LM\nRuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`\n", 2,
	 "--ckpt-fully-parallel-load", "micro-batch", "states read from a checkpoint", "the same in other words"},
	{"own", "  --no-load-optim \\\nMegatron-LM, training\nRuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`\n", 1, "micro-batch", NULL, NULL, "an option of the run that failed"},
	/* ---- sizes of names ---- */
	{"own", "full training of Mixtral 8x7b\n" OLD("256.00 MiB", "79.15 GiB", "78.30 GiB", "30.50 MiB", "78.65 GiB"), 6, "", NULL, "46.7 B parameters", "mistral.ai/news/mixtral-of-experts: its experts share their attention"},
	{"own", "full training of own/moe-8x7b\n" OLD("256.00 MiB", "79.15 GiB", "78.30 GiB", "30.50 MiB", "78.65 GiB"), 6, "", NULL, "56 B parameters", "eight experts of 7 B, where no family says what they share"},
};

static void test_facts(void **state)
{
	(void)state;
	crash_all_met(want, sizeof(want) / sizeof(want[0]));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {cmocka_unit_test(test_facts)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

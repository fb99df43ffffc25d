/* What a text's own numbers add up to: a request that is one number for every parameter of the model it names, weights and
 * states that fill the card or most of it whatever the batch, and which fixes are none of that. Texts of our own in the form
 * of public threads (named per row), the expectations written from the arithmetic beside them. */
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
#define NEW(tried, total, free, held, idle) "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate " tried ". GPU 0 has a total capacity of " total " of which " free \
					    " is free. Of the allocated memory " held " is allocated by PyTorch, and " idle " is reserved by PyTorch but unallocated.\n"
#define STEP TRACE AT("/l/transformers/trainer.py", "training_step", "loss = self.compute_loss(model, inputs)")

static const struct crash_want want[] = {
	/* ---- one number for every parameter ---- */
	{"LLaVA#655", "deepspeed own/train_mem.py --deepspeed ./scripts/zero2.json --model_name_or_path m/vicuna-7b-v1.5 --bf16 True --per_device_train_batch_size 1\n" NEW("12.55 GiB", "39.39 GiB", "12.41 GiB", "25.29 GiB", "150.00 MiB"), 1,
	 "ZeRO-3 in place of stage 2", "max_length", "7 B parameters, by the model's name, x 2 bytes = 13.04 GiB: the request is a whole copy of the weights", "12.55 GiB / 6.74e9 are 2 bytes"},
	{"dllm#9", "OOM while fine-tuning own/LLaDA-8B-Instruct with DeepSpeed ZeRO-2 (with CPU offload), two cards\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 14.90 GiB.\n", 1,
	 "ZeRO-3", "checkpoint", "8 B parameters, by the model's name, x 2 bytes = 14.90 GiB", "8e9 x 2 bytes; the offload is at work"},
	{"lit-llama#397", "fully finetune llama-7B with DeepSpeedStrategy(offload_optimizer=True) on 4 A100 GPUs\n" NEW("6.28 GiB", "39.39 GiB", "5.90 GiB", "31.38 GiB", "10.00 MiB"), 1,
	 "ZeRO-3 (stage: 3", "shorter sequences", "7 B parameters, by the model's name, x 4 bytes / 4 ranks = 6.52 GiB: the request is this rank's part", "6.28 GiB x 4 / 6.74e9 are 4 bytes"},
	{"own", "--model_name_or_path m/vicuna-7b-v1.5 --use_peft --bf16 True\n" STEP NEW("12.55 GiB", "39.39 GiB", "12.41 GiB", "25.29 GiB", "150.00 MiB"), 6,
	 "", NULL, "short by", "adapters have no such copy: that the sizes are alike says nothing"},
	{"own", "deepspeed own.py --deepspeed zero2.json --model_name_or_path m/vicuna-7b-v1.5\n" TRACE AT("/l/transformers/models/llama/modeling_llama.py", "forward", "hidden = self.mlp(hidden)") NEW("12.55 GiB", "39.39 GiB", "12.41 GiB", "25.29 GiB", "150.00 MiB"), 6,
	 "", NULL, "short by", "a layer's forward pass lays out no copy of the weights"},
	/* ---- what the states leave ---- */
	{"DeepSeek-Coder#78", "finetuning own/coder-33b-instruct with deepspeed zero stage3 on 8*A800 80G, batch_size 1\n" NEW("3.50 GiB", "79.35 GiB", "415.00 MiB", "77.08 GiB", "470.00 MiB"), 1,
	 "offload_optimizer", "bfloat16", "33 B parameters, by the model's name, x 16 bytes (weights, gradients, AdamW's states) among 8 cards = 61.5 GiB of this one's 79.35, whatever the batch: 17.9 GiB are left", "33e9 x 16 / 8"},
	{"lit-llama#381", "full finetuning of LLaMA 7B with 8 A100 GPUs\nmicro_batch_size = 1\n" NEW("250.00 MiB", "39.39 GiB", "150.00 MiB", "37.21 GiB", "800.00 MiB"), 1,
	 "FSDP", "checkpoint", "104.3 GiB a card", "7e9 x 8 bytes are more than 39.39 GiB as well: nothing that a batch keeps is in the way"},
	{"stanford_alpaca#56", "torchrun --nproc_per_node=1 train.py --model_name_or_path ./llama-7b-hf --bf16 True --per_device_train_batch_size 1\n" NEW("172.00 MiB", "79.20 GiB", "111.00 MiB", "77.46 GiB", "10.00 MiB"), 1,
	 "8bit", NULL, "(in 16 bits alone half of it)", "7e9 x 8 bytes are 52 GiB: that it does not fit is not sure"},
	{"trl#2927", "GRPO of --model_name_or_path Qwen/Qwen2.5-7B\nper_device_train_batch_size=4,\n" TRACE AT("/l/trl/trainer/grpo_trainer.py", "_get_per_token_logps", "logits = model(input_ids=input_ids).logits") NEW("11.59 GiB", "95.22 GiB", "9.05 GiB", "83.30 GiB", "2.07 GiB"), 2,
	 "per_device_train_batch_size 4 -> 2", NULL, NULL, "the frames show logits, and 52 GiB of states would fit"},
	{"own", "finetuning own/model-13b with deepspeed zero stage3 on 8*A100, batch_size 1, {\"offload_optimizer\": {\"device\": \"none\"}}\n" NEW("500.00 MiB", "39.39 GiB", "415.00 MiB", "37.08 GiB", "470.00 MiB"), 1,
	 "offload_optimizer", NULL, "among 8 cards = 24.2 GiB of this one's 39.39", "\"none\" offloads nothing"},
	{"own", "finetuning own/model-13b with deepspeed zero stage3 on 8*A100, batch_size 1, {\"offload_optimizer\": {\"device\": \"cpu\"}}\n" NEW("500.00 MiB", "39.39 GiB", "415.00 MiB", "37.08 GiB", "470.00 MiB"), 6,
	 "", "offload_optimizer", "states on the host", "they are not on the card"},
	/* ---- which of two batches ---- */
	{"lit-llama#286", "batch_size = 6\nmicro_batch_size = 2\npython finetune/lora.py\n" NEW("128.00 MiB", "31.75 GiB", "99.00 MiB", "30.61 GiB", "270.00 MiB"), 1,
	 "micro_batch_size 2 -> 1", "batch_size 6", NULL, "the other is a number of accumulated samples"},
	/* ---- set in other words ---- */
	{"trl#1833", "model = AutoModelForCausalLMWithValueHead.from_pretrained(own, peft_config=lora_config, quantization_config=bnb_config)\n" STEP NEW("2.72 GiB", "39.56 GiB", "2.01 GiB", "36.10 GiB", "900.00 MiB"), 6,
	 "", "LoRA", "adapters (LoRA), quantised weights", "arguments that are made elsewhere"},
	{"diffusion-pipe#157", "micro_batch_size_per_gpu = 1\ndtype = 'bfloat16'\n" STEP NEW("20.00 MiB", "15.92 GiB", "0 bytes", "14.87 GiB", "210.00 MiB"), 6,
	 "", "bf16", "16-bit training", "a key of TOML"},
	/* ---- by the keys of training frameworks ---- */
	{"own", "model_max_len: 4096\nlora_dim: 16\nuse_checkpoint_x: 1\n" STEP NEW("1.22 GiB", "79.15 GiB", "1.10 GiB", "77.31 GiB", "200.00 MiB"), 6,
	 "", NULL, "adapters (LoRA)", "DeepSpeed-Chat's name for a rank"},
	{"own", "reft_rank=4, deepspeed_offload_optimizer=True, activations-checkpoint-method=uniform\n" STEP NEW("1.22 GiB", "79.15 GiB", "1.10 GiB", "77.31 GiB", "200.00 MiB"), 6,
	 "", NULL, "gradient checkpointing", "Megatron's and ms-swift's names"},
	{"own", "disable_gradient_checkpointing: true\n" STEP NEW("1.22 GiB", "79.15 GiB", "1.10 GiB", "77.31 GiB", "200.00 MiB"), 1,
	 "without disable_gradient_checkpointing", NULL, NULL, "a name that switches it off"},
	{"own", "per_gpu_train_batch_size: 1\n" STEP NEW("1.22 GiB", "79.15 GiB", "1.10 GiB", "77.31 GiB", "200.00 MiB"), 6,
	 "", "micro-batch", "a batch of one", "an old name of the Trainer's scripts"},
	/* ---- what was going on, and what the host holds ---- */
	{"MONAI/tutorials#1258", "model = SwinUNETR(img_size=(96, 96, 96)).to(device)\ntrain_loader = DataLoader(train_ds, batch_size=1)\nTraining (0 / 24 Steps):   0%|          | 0/24 [00:12<?, ?it/s]\n" NEW("1.32 GiB", "14.75 GiB", "832.00 MiB", "12.60 GiB", "337.00 MiB"), 1,
	 "", "load to the host first", NULL, "the code above has gone on to its first step"},
	{"yolov3#46", "always at the end of the first epoch of training, batch size 1 fails as well\nRuntimeError: CUDA error: out of memory\n", 1,
	 "evaluation batch", "autocast", NULL, "what an epoch ends with is an evaluation"},
	{"DeepSpeed#4571", "I am fine-tuning GPT-3 6.7B, \"offload_optimizer\": { \"device\": \"nvme\", \"nvme_path\": \"/n\" }\n[utils.py:799:see_memory_usage] CPU Virtual Memory: used = 26.4 GB, percent = 84.6%\n"
			   "[launch.py:315:sigkill_handler] Killing subprocess 1080504\n[launch.py:321:sigkill_handler] ['/usr/bin/python3', '-u', 'train.py'] exits with return code = -9\n", 1,
	 "zero.Init", "offload to nvme", "their states are on disks", "states are on disks already"},
	{"transformers#27708", "When testing on Colab (T4), this code crashes\nAutoModelForCausalLM.from_pretrained(\"mistralai/Mistral-7B-v0.1\", load_in_4bit=True)\nYour session crashed after using all available RAM.\n", 2,
	 "safetensors", "metric", "13.0 GiB in 16 bits", "testing a call is no evaluation"},
	{"transformers#26283", "Platform: Linux-5.15.90.1-microsoft-standard-WSL2-x86_64\nLoading checkpoint shards:   0%|          | 0/3 [00:00<?, ?it/s]\nKilled\n", 2,
	 ".wslconfig", NULL, NULL, "Windows gives it half of its memory"},
	/* ---- in their order ---- */
	{"LlamaFactory#5051", "llamafactory-cli train\nmodel_name_or_path: /m/Qwen2-7B\nstage: rm\nfinetuning_type: full\ndeepspeed: own/ds_z3_config.json\ncutoff_len: 8192\nper_device_train_batch_size: 1\nbf16: true\n" NEW("4.64 GiB", "79.15 GiB", "2.80 GiB", "71.20 GiB", "3.79 GiB"), 2,
	 "cutoff_len 8192 -> 4096", "gradient checkpointing is on", "1 x cutoff_len 8192 x 152064", "the request is as long as the run's own limit"},
	{"LlamaFactory#7833", "llamafactory-cli train\nfinetuning_type: full\ndeepspeed: own/ds_z3_offload_config.json\nper_device_train_batch_size: 1\n" STEP NEW("1.40 GiB", "15.77 GiB", "1.01 GiB", "12.92 GiB", "100.00 MiB"), 6,
	 "", "offload_optimizer", "states on the host", "by the file's name"},
	{"qlora#225", "QLoRA, runs fine for a few steps\nper_device_train_batch_size=1,\n" STEP NEW("490.00 MiB", "23.68 GiB", "318.00 MiB", "21.60 GiB", "200.00 MiB"), 1,
	 "longest", NULL, "steps went through before it", "in somebody's words"},
	{"axolotl#219", "whenever I try to resume the training from a checkpoint I run out of memory\n" TRACE AT("/l/transformers/trainer.py", "_load_optimizer_and_scheduler", "self.optimizer.load_state_dict(torch.load(f))") NEW("86.00 MiB", "23.69 GiB", "51.00 MiB", "22.55 GiB", "20.00 MiB"), 1,
	 "map_location=\"cpu\"", "8bit", NULL, "without the checkpoint it fitted"},
	{"transformers#3730", "python -m torch.distributed.launch --nproc_per_node 8 own_train.py --per_gpu_train_batch_size 1\n" TRACE AT("own_train.py", "train", "torch.load(os.path.join(p, \"optimizer.pt\")))")
			      "RuntimeError: CUDA out of memory. Tried to allocate 76.00 MiB (GPU 0; 31.72 GiB total capacity; 9.77 GiB already allocated; 68.88 MiB free; 10.11 GiB reserved in total by PyTorch)\n", 1,
	 "torch.load(map_location=\"cpu\")", NULL, NULL, "the others on that card are ranks that read the same file"},
	{"MONAI#8042", "model = SwinUNETR(img_size=128, use_checkpoint=False).to(device)\nwhen I train the model with a batch of 1, I get\n" NEW("1.32 GiB", "11.71 GiB", "681.00 MiB", "9.92 GiB", "480.00 MiB"), 2,
	 "use_checkpoint=True", "load to the host first", NULL, "it is off, and stands behind the batch"},
	{"own", "python own_train.py --batch_size 4 --grad_checkpointing False\n" STEP NEW("1.32 GiB", "11.71 GiB", "681.00 MiB", "9.92 GiB", "480.00 MiB"), 2,
	 "grad_checkpointing True (it is off)", NULL, NULL, "the run's own option by its name"},
	{"DeepSpeed#6679", "finetune a lora model of 6b\n{\"train_micro_batch_size_per_gpu\": 1, \"zero_optimization\": {\"stage\": 3, \"offload_optimizer\": {\"device\": \"cpu\"}}}\n" TRACE AT("/l/torch/autograd/__init__.py", "backward", "Variable._execution_engine.run_backward(") NEW("508.00 MiB", "23.69 GiB", "310.00 MiB", "21.83 GiB", "400.00 MiB"), 6,
	 "", "spread states", NULL, "the stage is in the file that is shown"},
	{"ms-swift#2010", "swift sft --model_type qwen2-vl-7b-instruct --sft_type lora --batch_size 1 --gradient_checkpointing true\n" NEW("3.77 GiB", "79.11 GiB", "1.61 GiB", "75.16 GiB", "1.27 GiB"), 1,
	 "MAX_PIXELS", NULL, NULL, "of one sample it is its images"},
	{"ms-swift#5199", "swift sft --model Qwen2.5-VL-7B-Instruct --train_type lora --max_length 20480 --per_device_train_batch_size 1\nthe same with llama-factory is fine.\n" STEP NEW("5.24 GiB", "47.54 GiB", "3.02 GiB", "40.61 GiB", "3.30 GiB"), 6,
	 "--max_length 20480 -> 10240", "cutoff_len", NULL, "a program that is named because it does not fail"},
	/* ---- what draws ---- */
	{"sd-scripts#1152", "./sdxl_train.py --pretrained_model_name_or_path=sd_xl_base_1.0.safetensors --full_bf16 --gradient_checkpointing --train_batch_size 1 --optimizer_type=Prodigy\n" NEW("20.00 MiB", "23.98 GiB", "14.00 MiB", "23.08 GiB", "400.00 MiB"), 2,
	 "AdamW8bit or Adafactor", NULL, "2.6 B parameters, by the model's name, x 16 bytes", "2.6e9 x 16 bytes are 38.7 GiB"},
	/* ---- what a step generates ---- */
	{"trl#2927", "training_args = GRPOConfig(\n    per_device_train_batch_size=4,\n    max_prompt_length=512,\n    max_completion_length=2048,\n    gradient_checkpointing=True,\n)\n" STEP NEW("1.59 GiB", "95.22 GiB", "1.05 GiB", "83.30 GiB", "2.07 GiB"), 2,
	 "max_completion_length 2048 -> 1024; a step keeps prompt and completion together", "tokenizer", NULL, "what is generated has a limit of its own"},
	{"OpenRLHF#858", "openrlhf.cli.train_ppo --micro_train_batch_size 2 --prompt_max_len 1024 --generate_max_len 1024 --zero_stage 3 --bf16\n" NEW("1.96 GiB", "44.34 GiB", "1.09 GiB", "40.98 GiB", "17.00 MiB"), 2,
	 "--generate_max_len 1024 -> 512", NULL, NULL, "under its own name"},
	{"open-instruct#393", "accelerate launch --num_processes 3 --config_file configs/deepspeed_zero3.yaml own/ppo.py --per_device_train_batch_size 2 --response_length 1024\n" STEP NEW("1.22 GiB", "93.00 GiB", "1.10 GiB", "87.31 GiB", "2.58 GiB"), 2,
	 "--response_length 1024 -> 512", NULL, NULL, "PPO's script"},
	{"unsloth#1624", "GRPOTrainer on a 7b model, max_completion_length=4096, 4%|#   | 121/3000 [1:32:11<36:33:11, 45.7s/it]\n" NEW("4.64 GiB", "47.53 GiB", "3.95 GiB", "40.87 GiB", "1.76 GiB"), 1,
	 "max_completion_length 4096 -> 2048", "bucket", NULL, "no data set whose longest sample could come first"},
	{"own", "llamafactory-cli train own_sft.yaml, as the docs support\ncutoff_len: 4096\nmax_new_tokens: 512\nper_device_train_batch_size: 1\n" STEP NEW("1.22 GiB", "79.15 GiB", "1.10 GiB", "77.31 GiB", "200.00 MiB"), 6,
	 "cutoff_len 4096 -> 2048", "max_new_tokens", NULL, "of supervised training it is the evaluation's alone"},
	{"trl#2688", "training_args = GRPOConfig(use_vllm=True, bf16=True)\n" TRACE AT("/l/trl/trainer/grpo_trainer.py", "__init__", "self.llm = LLM(") AT("/l/vllm/worker/worker.py", "load_model", "self.model_runner.load_model()") NEW("502.00 MiB", "22.03 GiB", "383.00 MiB", "20.65 GiB", "20.00 MiB"), 1,
	 "vllm_gpu_memory_utilization", "load_in_4bit", NULL, "it is the engine's weights that found no room"},
};

static void test_sums(void **state)
{
	(void)state;
	crash_all_met(want, sizeof(want) / sizeof(want[0]));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {cmocka_unit_test(test_sums)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

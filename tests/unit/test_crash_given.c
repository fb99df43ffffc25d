/* What the text itself gives: the request as the product of the run's own numbers, a size that only a model's name holds, one
 * process, cards of another generation, steps that went through. Texts of our own in the form of public threads (named per row),
 * the expectations written from what the thread settled or from the arithmetic beside them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "crash_wants.h"
#include "oomplan/diagnose.h"
#include "oomplan/gpu.h"

#define AT(file, function, code) "  File \"" file "\", line 7, in " function "\n    " code "\n"
#define TRACE "Traceback (most recent call last):\n"
#define NEW(tried, total, free, held, idle) "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate " tried ". GPU 0 has a total capacity of " total " of which " free \
					    " is free. Of the allocated memory " held " is allocated by PyTorch, and " idle " is reserved by PyTorch but unallocated.\n"
#define OLD(tried, total, held, free, reserved) "RuntimeError: CUDA out of memory. Tried to allocate " tried " (GPU 0; " total " total capacity; " held " already allocated; " free \
						" free; " reserved " reserved in total by PyTorch)\n"
#define STEP TRACE AT("/l/transformers/trainer.py", "training_step", "loss = self.compute_loss(model, inputs)")

static const struct crash_want want[] = {
	/* ---- the request by its size alone ---- */
	{"LLaMA-Factory#4642", "model_name_or_path: /m/Qwen2-7B-Instruct\nfinetuning_type: lora\ncutoff_len: 16384\nper_device_train_batch_size: 1\nbf16: true\n" NEW("9.28 GiB", "79.32 GiB", "5.00 GiB", "70.00 GiB", "1.00 GiB"), 1,
	 "enable_liger_kernel", NULL, "1 x cutoff_len 16384 x 152064 words of the vocabulary, by the model's name, x 4 bytes = 9.28 GiB", "16384 x 152064 x 4 bytes are 9.28 GiB"},
	{"own", "--model_name_or_path /m/Meta-Llama-3.1-8B --max_seq_length 4096 --per_device_train_batch_size 4 --use_peft\n" NEW("3.91 GiB", "44.30 GiB", "1.00 GiB", "40.00 GiB", "1.00 GiB"), 6,
	 "", NULL, "4 x --max_seq_length 4096 x 128256 words of the vocabulary, by the model's name, x 2 bytes = 3.91 GiB", "4 x 4096 x 128256 x 2 bytes"},
	{"own", "--model_name_or_path /m/Meta-Llama-3.1-8B --max_seq_length 4096 --per_device_train_batch_size 4 --use_peft\n" NEW("3.50 GiB", "44.30 GiB", "1.00 GiB", "40.00 GiB", "1.00 GiB"), 1,
	 "--per_device_train_batch_size 4 -> 2", NULL, NULL, "no product of these numbers: nothing is said of logits"},
	/* ---- how large a model is ---- */
	{"LLaMA-Factory#9510", "full DeepSeek-R1-0528-BF16 on one node\n[rank5]: " TRACE AT("/w/src/llamafactory/train/sft/workflow.py", "run_sft", "model = load_model(tokenizer, model_args)") NEW("56.00 MiB", "79.33 GiB", "49.00 MiB", "77.90 GiB", "90.00 MiB"), 6,
	 "ZeRO-3", NULL, "671 B parameters, by the model's name, x 2 bytes (weights in 16 bits) = 1249.8 GiB a card: its 79.33 GiB do not hold them, whatever the batch; divided, they fill 16 such cards", "671e9 x 2 bytes / 79.33 GiB"},
	{"own", "model_name_or_path: x/DeepSeek-R1-Distill-Qwen-7B\n" STEP NEW("56.00 MiB", "79.33 GiB", "49.00 MiB", "77.90 GiB", "90.00 MiB"), 6,
	 "", NULL, "7 B parameters", "a distilled model has another size than what it is distilled from"},
	/* ---- one process ---- */
	{"FastChat#367", "torchrun --nnodes=1 --nproc_per_node=1 train_mem.py --model_name_or_path m/llama-13b-hf --bf16 True --per_device_train_batch_size 1 --fsdp \"full_shard auto_wrap\" --gradient_checkpointing True\n" STEP
			 NEW("136.00 MiB", "79.35 GiB", "80.00 MiB", "77.30 GiB", "400.00 MiB"), 2,
	 "LoRA", "fsdp=\"full_shard", "13 B parameters, by the model's name, x 16 bytes (weights, gradients, AdamW's states) = 193.7 GiB a card: its 79.35 GiB do not hold them, whatever the batch, if all are trained; divided, they fill 3 such cards",
	 "13e9 x 16 bytes; among one process nothing is divided, whatever it is told"},
	{"own", "torchrun --nnodes=4 --nproc_per_node=1 train_mem.py --model_name_or_path m/llama-13b-hf --bf16 True --per_device_train_batch_size 1 --fsdp \"full_shard auto_wrap\"\n" STEP NEW("136.00 MiB", "79.35 GiB", "80.00 MiB", "77.30 GiB", "400.00 MiB"), 6,
	 "", NULL, "sharded parameters", "one process a node is four: they are divided"},
	/* ---- steps went through ---- */
	{"LLaMA-Factory#6531", "model_name_or_path: m/Meta-Llama-3.1-8B\nfinetuning_type: lora\ndeepspeed: ds_z3_config.json\ncutoff_len: 15000\nper_device_train_batch_size: 1\n  4%|#  | 212/5310 [1:22:13<32:56:12, 23.26s/it]\n"
			       NEW("7.02 GiB", "44.32 GiB", "4.41 GiB", "35.88 GiB", "1.50 GiB"), 1,
	 "longest", NULL, "steps went through before it", "212 steps fit"},
	{"LLaMA-Factory#3310", "--finetuning_type lora --cutoff_len 8192 --per_device_train_batch_size 2\n 11%|# | 137/1251 [40:28<5:12:44, 16.84s/it]\n" NEW("1.97 GiB", "23.65 GiB", "1.21 GiB", "18.98 GiB", "2.91 GiB"), 6,
	 "--cutoff_len 8192 -> 4096", NULL, NULL, "pieces or not, it is the long samples that came later"},
	/* ---- what is set, in others' words ---- */
	{"VS_Seg#6", "the batch size is one and epoch 2 fails\n" TRACE AT("own/train.py", "epoch", "loss.backward()") NEW("864.00 MiB", "23.70 GiB", "410.00 MiB", "20.70 GiB", "300.00 MiB"), 6,
	 "autocast", "micro-batch", "a batch of one", "in words as in digits"},
	{"axolotl#814", "load_in_8bit: true\nadapter: lora\nsequence_len: 4096\nmicro_batch_size: 2\n" STEP NEW("224.00 MiB", "79.15 GiB", "70.00 MiB", "76.30 GiB", "300.00 MiB"), 1,
	 "micro_batch_size 2 -> 1", "zero3", "adapters (LoRA)", "a frozen base of 8 bits has next to nothing that ranks could divide"},
	{"LLaMA-Factory#5709", "llamafactory-cli train --finetuning_type lora --use_unsloth True --cutoff_len 4096 --per_device_train_batch_size 1\nUnsloth: patched\n" NEW("1.96 GiB", "44.42 GiB", "1.28 GiB", "41.00 GiB", "300.00 MiB"), 6,
	 "quantization_bit: 4", "FastLanguageModel", NULL, "who started it has its options, not those of what it calls"},
	{"kohya_ss#2217", "tried to train a LoRA.\nbatch size per device: 1\n" TRACE AT("C:\\\\k\\\\sd-scripts\\\\library\\\\sdxl_original_unet.py", "forward", "output = torch.utils.checkpoint.checkpoint(f)") NEW("20.00 MiB", "8.00 GiB", "0 bytes", "7.10 GiB", "190.00 MiB"), 6,
	 "--fp8_base", "LoRA in place of", NULL, "the sentence ends behind its word"},
	{"ms-swift#2529", "swift sft --model_type qwen2-vl-7b-instruct --sft_type lora --deepspeed default-zero3\n" NEW("21.80 GiB", "79.32 GiB", "12.61 GiB", "61.30 GiB", "4.42 GiB"), 1,
	 "MAX_PIXELS", NULL, NULL, "a quarter of the card for one tensor of a model that sees"},
	/* ---- trainers of pictures by their own names ---- */
	{"SimpleTuner#1728", "{\"model_family\": \"flux\", \"train_batch_size\": 1, \"lora_rank\": 16}\n" TRACE AT("/w/SimpleTuner/simpletuner/helpers/training/trainer.py", "train", "self.accelerator.backward(loss)") NEW("54.00 MiB", "79.11 GiB", "33.00 MiB", "77.60 GiB", "700.00 MiB"), 6,
	 "--base_model_precision int8-quanto", "--fp8_base", NULL, "OPTIONS.md of SimpleTuner"},
	{"own", "name: own_flux\nnetwork:\n  type: \"lora\"\n" TRACE AT("/w/ai-toolkit/jobs/process/BaseSDTrainProcess.py", "run", "loss_dict = self.hook_train_loop(batch)") NEW("54.00 MiB", "23.60 GiB", "33.00 MiB", "22.60 GiB", "200.00 MiB"), 6,
	 "quantize_te: true", "--fp8_base", NULL, "its examples' YAML"},
	{"own", TRACE AT("/w/musubi-tuner/src/musubi_tuner/hv_train_network.py", "train", "accelerator.backward(loss)") NEW("54.00 MiB", "23.60 GiB", "33.00 MiB", "22.60 GiB", "200.00 MiB"), 6,
	 "--fp8_base with --fp8_scaled", "--lowram", NULL, "docs/block_swap.md of musubi-tuner"},
	{"own", TRACE AT("/w/diffusion-pipe/train.py", "<module>", "loss = model_engine.train_batch()") AT("/l/deepspeed/runtime/pipe/engine.py", "train_batch", "self._exec_schedule(sched)") NEW("54.00 MiB", "23.60 GiB", "33.00 MiB", "22.60 GiB", "200.00 MiB"), 6,
	 "activation_checkpointing = true", NULL, NULL, "main_example.toml of diffusion-pipe"},
	/* ---- numbers of servers and scripts ---- */
	{"vllm#27508", "vllm serve own/model\nRuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests. Please try lowering `max_num_seqs` or `gpu_memory_utilization` when initializing the engine.\n", 1,
	 "max_num_seqs 1024 -> 512", NULL, NULL, "as many as were allowed"},
	{"SkyReels-V1#104", "python3 own_generate.py --height 960 --width 736 --num_frames 97\n" NEW("6.28 GiB", "23.64 GiB", "3.82 GiB", "19.00 GiB", "200.00 MiB"), 1,
	 "--num_frames 97 -> 48 or --height 960 -> 704", NULL, NULL, "a clip has both"},
	/* ---- what the run has word for word ---- */
	{"Geometry-Grounded-GS#17", "python train.py -s d --eval --data_device cpu\n" TRACE AT("/w/gaussian-splatting/train.py", "training", "loss.backward()") NEW("514.00 MiB", "10.00 GiB", "0 bytes", "8.50 GiB", "380.00 MiB"), 6,
	 "--densify_grad_threshold", "--data_device", NULL, "it is on the command line"},
	{"own", "network:\n  type: \"lora\"\nmodel:\n  quantize: true\n  quantize_te: true\n  low_vram: true\n" TRACE AT("/w/ai-toolkit/jobs/process/BaseSDTrainProcess.py", "run", "loss_dict = self.hook_train_loop(batch)")
		NEW("54.00 MiB", "23.60 GiB", "33.00 MiB", "22.60 GiB", "200.00 MiB"), 6,
	 "batch_size 1", "quantize_te", NULL, "keys of a file as well"},
	{"lit-gpt#553", "python finetune/lora.py --precision bf16-true\nmicro_batch_size: 4\n" TRACE AT("/w/lit-gpt/finetune/lora.py", "train", "fabric.backward(loss)") NEW("172.00 MiB", "23.69 GiB", "89.00 MiB", "22.20 GiB", "600.00 MiB"), 6,
	 "--quantize bnb.nf4", "with --precision", NULL, "of two options that go together the other is left"},
	{"pinokio#941", "MPS backend out of memory (MPS allocated: 6.00 GB, other allocations: 3.10 GB, max allowed: 9.07 GB). Tried to allocate 256 bytes on shared pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper "
			"limit for memory allocations (may cause system failure).\n", 6,
	 "PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0", NULL, NULL, "what a message tells to use is no setting"},
	{"fish-speech#41", "fine-tuning on recordings of 8 seconds\n" TRACE AT("/w/fish_speech/models/text2semantic/llama.py", "forward", "y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)") NEW("2.00 GiB", "31.74 GiB", "1.42 GiB", "28.00 GiB", "1.70 GiB"), 6,
	 "dense mask", "scaled_dot_product_attention", NULL, "the call that ran"},
	/* ---- what helps at that place ---- */
	{"open-r1#475", "model_name_or_path: m/Qwen2.5-7B\nper_device_train_batch_size: 1\n" STEP AT("/l/torch/optim/adamw.py", "_init_group", "state[\"exp_avg_sq\"] = torch.zeros_like(") NEW("130.00 MiB", "79.33 GiB", "75.00 MiB", "77.90 GiB", "400.00 MiB"), 1,
	 "8bit", "max_length", NULL, "activations are gone when states are made"},
	{"Matcha-TTS#14", "Reduced batch_size from 32 to 16 to 8 but still got OOM while training\nbatch_size: 8\ntorch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 5.44 GiB. GPU 0 has a total capacty of 79.15 GiB of which 3.01 GiB "
			  "is free. Process 12113 has 40.20 GiB memory in use. Including non-PyTorch memory, this process has 35.93 GiB memory in use. Of the allocated memory 33.10 GiB is allocated by PyTorch, and 2.30 GiB is reserved by PyTorch "
			  "but unallocated.\n", 2,
	 "further than was tried: batch_size 8 -> 4", NULL, NULL, "beside 40 GiB of somebody else's"},
	{"vllm#16570", "vllm serve own --max-model-len 16384\nValueError: The model's max seq len (16384) is larger than the maximum number of tokens that can be stored in KV cache (528). Try increasing `gpu_memory_utilization` or decreasing "
		       "`max_model_len` when initializing the engine.\n", 1,
	 "max_model_len 528 or less", "-> 8192", NULL, "half of 16384 is not what the message says would fit"},
	{"fairseq#2633", "train.py --max-tokens 1280000 --batch-size 10 --fp16\n| WARNING | fairseq.trainer | OOM: Ran out of memory with exception: CUDA out of memory. Tried to allocate 392.00 MiB (GPU 0; 10.76 GiB total capacity; 8.91 GiB "
			 "already allocated; 274.56 MiB free; 9.60 GiB reserved in total by PyTorch)\n", 1,
	 "--max-tokens 1280000 -> 640000", NULL, NULL, "it is the batch of this program"},
	{"llm-compressor#1483", "NUM_CALIBRATION_SAMPLES = 256\n" TRACE AT("/l/llmcompressor/modifiers/quantization/gptq/gptq_quantize.py", "quantize_weight", "Hinv = torch.cholesky_inverse(H)") NEW("3.26 GiB", "79.15 GiB", "2.51 GiB", "75.10 GiB", "900.00 MiB"), 1,
	 "NUM_CALIBRATION_SAMPLES 256 -> 128", NULL, NULL, "a script's constant"},
	{"lmdeploy#3501", "lmdeploy lite auto_awq m --calib-samples 256 --calib-seqlen 1024 --batch-size 1\nmodel.layers.26, samples: 256, max gpu memory: 15.10 GB\n" NEW("7.00 GiB", "23.64 GiB", "6.15 GiB", "17.00 GiB", "20.00 MiB"), 1,
	 "--calib-samples 256 -> 128", "--batch-size", NULL, "a batch of one still calibrates with 256 samples"},
	/* ---- what was going on ---- */
	{"transformers#20348", "I run out of memory while training (with batch size set to 1)\nmodel = WhisperForConditionalGeneration.from_pretrained(\"own\")\nper_device_train_batch_size=1,\n" OLD("26.00 MiB", "23.65 GiB", "22.14 GiB", "20.00 MiB", "22.20 GiB"), 1,
	 "gradient_checkpointing", NULL, NULL, "of code that is shown, who shows it says which part failed"},
	{"CBDNet#14", "I just run the test code, but get the error. And then I try the train code, it is ok.\n" OLD("3.83 GiB", "23.65 GiB", "16.60 GiB", "3.37 GiB", "17.70 GiB"), 6,
	 "evaluation batch", "micro-batch", NULL, "what is ok is not what failed"},
	/* ---- a command above its frames, and what it was told ---- */
	{"SVD_Xtend#39", "accelerate launch train_svd.py --per_gpu_batch_size=1 --width=1280 --mixed_precision=\"fp16\" --validation_steps=200 --use_8bit_adam --use_ema\n" AT("/w/train_svd.py", "main", "accelerator.backward(loss)")
			 NEW("3.96 GiB", "79.15 GiB", "2.80 GiB", "73.60 GiB", "2.10 GiB"), 1,
	 "without --use_ema", "eval_batch", NULL, "how often it validates is no frame of a validation"},
	{"Vista#57", "python train.py --num_nodes 1 --n_devices 1\n  params:\n    num_frames: 2\n    use_checkpoint: True\n" TRACE AT("/w/Vista/train.py", "<module>", "trainer.fit(model, data)") OLD("50.00 MiB", "47.54 GiB", "46.10 GiB", "38.00 MiB", "46.70 GiB"), 6,
	 "autocast", "neighbours", "gradient checkpointing", "nodes of a launcher are no graph's"},
	{"Megatron-LM#606", "pretrain_gpt.py --tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 --micro-batch-size 1 --bf16\n" TRACE AT("/w/megatron/optimizer/optimizer.py", "__init__", "main_param = param.detach().clone().float()")
			    OLD("172.00 MiB", "39.39 GiB", "37.60 GiB", "64.00 MiB", "37.80 GiB"), 2,
	 "more --tensor-model-parallel-size", NULL, NULL, "one of it is no more of it"},
	{"diffusion-pipe#450", "micro_batch_size_per_gpu = 1\nactivation_checkpointing = \"unsloth\"\ntransformer_dtype = \"float8\"\ntype = \"lora\"\n" TRACE AT("/diffusion-pipe/train.py", "<module>", "metrics = model_engine.train_batch(it)") AT("/l/deepspeed/runtime/pipe/engine.py", "train_batch", "self._exec_schedule(sched)")
			       NEW("112.00 MiB", "11.99 GiB", "0 bytes", "10.80 GiB", "310.00 MiB"), 6,
	 "frame_buckets", "float8", "gradient checkpointing", "keys of TOML"},
	{"own", "tune run full_finetune_distributed batch_size=64 gradient_accumulation_steps=1\n" NEW("31.31 GiB", "21.99 GiB", "8.60 GiB", "11.80 GiB", "1.10 GiB"), 1,
	 "batch_size 64 -> 32", NULL, NULL, "half of 31.31 fits 21.99"},
	{"NeMo-RL#366", "SFT Llama-3.1-8B\nuv run run_sft.py policy.train_micro_batch_size=8\n" TRACE AT("/opt/nemo_rl/models/policy/dtensor_policy_worker.py", "train", "loss.backward()") NEW("15.66 GiB", "79.10 GiB", "13.90 GiB", "61.40 GiB", "2.10 GiB"), 3,
	 "policy.train_micro_batch_size 8 -> 4", NULL, NULL, "states in the way are no reason to leave a batch of eight"},
	{"own", "embedding of documents\n" TRACE AT("/app/index.py", "embed", "out = model.encode(texts, batch_size=64, max_length=8192)") NEW("16.00 GiB", "23.69 GiB", "14.50 GiB", "8.50 GiB", "400.00 MiB"), 1,
	 "batch_size 64 -> 32", NULL, NULL, "the line that failed says it itself"},
	{"textgen#6922", "text-generation-webui: python server.py --loader ExLlamav3_HF --n_ctx 56320\n" TRACE AT("/w/text-generation-webui/modules/exllamav3_hf.py", "__call__", "logits = self.ex_model.forward(ids)") NEW("2.49 GiB", "23.59 GiB", "1.88 GiB", "20.30 GiB", "500.00 MiB"), 1,
	 "--n_ctx 56320 -> 28160", "-> 28160)", NULL, "an option by its older name"},
	/* ---- what the size or the count says ---- */
	{"DiffSynth-Studio#300", "HunyuanVideo in DiffSynth on a V100\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1263.35 GiB.\n", 2,
	 "matrix", NULL, "no card holds 1263 GiB", "the largest card of 2025 has 288 GB"},
	{"gns#10", "Training step: 1310/2000000. Loss: 0.03\n" TRACE AT("/w/gns/train.py", "train", "loss.backward()") OLD("742.00 MiB", "15.75 GiB", "13.50 GiB", "600.00 MiB", "14.00 GiB"), 6,
	 "", NULL, "steps went through before it", "a log's own count"},
	{"transformers#8476", "per_device_eval_batch_size=16,\n" TRACE AT("/l/transformers/trainer_pt_utils.py", "nested_concat", "return torch.cat((tensors, new_tensors), dim=0)")
			      "RuntimeError: [enforce fail at CPUAllocator.cpp:64] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 19247333376 bytes. Error code 12 (Cannot allocate memory)\n", 2,
	 "preprocess_logits_for_metrics", NULL, NULL, "what an evaluation collects fills the host"},
	{"Video-R1#15", "per_device_train_batch_size=1\n" STEP AT("/l/transformers/models/qwen2_5_vl/modeling_qwen2_5_vl.py", "forward", "a = F.scaled_dot_product_attention(q, k, v, m)") NEW("131.22 GiB", "79.33 GiB", "1.27 GiB", "54.80 GiB", "22.40 GiB"), 1,
	 "chunks; free memory", "or free memory", NULL, "a list without its last"},
	/* ---- what a sentence says of the run, and who else is on the card ---- */
	{"GPT-4-LLM#16", OLD("172.00 MiB", "79.35 GiB", "73.90 GiB", "12.00 MiB", "76.80 GiB") "Cards: 2 of 80G\nDeepSpeed: ZeRO3\n", 6,
	 "offload_optimizer", "stage 2 or 3", "sharded parameters", "the third stage is there"},
	{"axolotl#998", "QLoRa of a Mixtral on two cards\n" TRACE AT("/w/axolotl/src/axolotl/cli/train.py", "<module>", "fire.Fire(do_cli)") AT("/l/accelerate/utils/modeling.py", "set_module_tensor_to_device", "new_value = old_value.to(device)")
			OLD("20.00 MiB", "24.00 GiB", "23.01 GiB", "0 bytes", "23.10 GiB"), 1,
	 "fsdp_config", "the base quantised", NULL, "of four bits already"},
	{"StyleTTS2FineTune#1", "StyleTTS2 fine tuning on clips of four seconds\n" NEW("50.00 MiB", "8.00 GiB", "0 bytes", "14.20 GiB", "400.00 MiB"), 1,
	 "micro-batch", "if it was not training", NULL, "with a blank between"},
	{"DeepSpeed#2899", "I use deepspeed ZERO-3 with the Trainer to finetune a model of 30b\ngpu-3:     ret = input.softmax(dim, dtype=dtype)\n" OLD("896.00 MiB", "79.17 GiB", "76.60 GiB", "381.00 MiB", "77.20 GiB"), 1,
	 "scaled_dot_product_attention", "stage 2 or 3", "square of the length", "scores in 16 bits"},
	{"openvla#105", "It works with one card; of several for fine-tuning it does not\ntorch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total capacity of 23.64 GiB of which 2.00 MiB is free. "
			"Process 36 has 808.00 MiB memory in use. Process 33 has 21.48 GiB memory in use. Process 35 has 690.00 MiB memory in use. Process 34 has 688.00 MiB memory in use. "
			"Of the allocated memory 282.00 MiB is allocated by PyTorch, and 21.50 MiB is reserved by PyTorch but unallocated.\n", 2,
	 "local_rank", NULL, NULL, "contexts of the other ranks"},
	{"FireRedTTS2#17", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 26.00 MiB. GPU 0 has a total capacity of 11.66 GiB of which 9.80 MiB is free. Process 38 has 618.00 MiB memory in use. "
			   "Process 14 has 1.28 GiB memory in use. Including non-PyTorch memory, this process has 9.74 GiB memory in use. Of the allocated memory 9.30 GiB is allocated by PyTorch, and 163.00 MiB is reserved by PyTorch but unallocated.\n", 6,
	 "end the other programs", NULL, "1.88 GiB", "16 MiB were missing"},
	{"kohya_ss#2724", "kohya, flux.1 lora training, train batch size = 1, max resolution = 512,512\n" NEW("18.00 MiB", "44.53 GiB", "15.00 MiB", "42.17 GiB", "1.83 GiB"), 2,
	 "blocks_to_swap", NULL, NULL, "one card is enough for that"},
	{"InternVL#84", "python internvl/train/internvl_chat_finetune.py --freeze_llm False --fp16 True --per_device_train_batch_size 1\ntorch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 280.00 MiB\n", 6,
	 "deepspeed=", NULL, NULL, "a model of language that sees"},
	{"InvokeAI", "[InvokeAI]\n" TRACE AT("/l/torch/nn/modules/conv.py", "_conv_forward", "return F.conv2d(")
		     "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 4.50 GiB. GPU 0 has a total capacity of 15.98 GiB of which 1.40 GiB is free. Of the allocated memory 1.26 GiB is allocated by PyTorch, "
		     "and 152.00 MiB is reserved by PyTorch but unallocated.\n", 3,
	 "force_tiled_decode", NULL, NULL, "maps of a third of the card"},
	/* ---- sizes against one another, and who holds the most ---- */
	{"gpt4all#544", "fine tuning on four V100 of 16GB\n" OLD("11.27 GiB", "15.77 GiB", "11.38 GiB", "3.48 GiB", "11.39 GiB"), 1,
	 "optimizer state", "micro-batch", "the weights once more", "6051 M numbers of 16 bits: a model of 6 B"},
	{"yolov5#10528", "training, batch size of 8\n" OLD("1936.00 GiB", "11.17 GiB", "2.15 GiB", "7.62 GiB", "3.02 GiB"), 1,
	 "make that one tensor smaller", NULL, NULL, "an eighth is 242 GiB: no batch helps"},
	{"CogVideo#225", TRACE AT("/l/deepspeed/runtime/engine.py", "_configure_zero_optimizer", "optimizer = DeepSpeedZeroOptimizer(") AT("/l/deepspeed/runtime/zero/stage_1_and_2.py", "__init__", "self.device).clone().float().detach()")
			 "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.74 GiB. GPU 0 has a total capacity of 79.44 GiB of which 3.03 GiB is free. Process 16 has 26.06 GiB memory in use. "
			 "Including non-PyTorch memory, this process has 50.34 GiB memory in use. Of the allocated memory 49.70 GiB is allocated by PyTorch, and 47.00 MiB is reserved by PyTorch but unallocated.\n", 2,
	 "offload_optimizer", NULL, "62.22 GiB", "the other process's 26 GiB are not enough for three such copies"},
	{"xinference#3837", "ERROR    Model actor is out of memory, model id: Qwen3-Reranker, error: CUDA out of memory. Tried to allocate 202.00 MiB. GPU 0 has a total capacity of 47.37 GiB of which 64.00 MiB is free. "
			    "Process 79 has 466.00 MiB memory in use. Process 99 has 3.53 GiB memory in use. Process 10 has 3.07 GiB memory in use. Process 94 has 37.59 GiB memory in use. "
			    "Of the allocated memory 36.20 GiB is allocated by PyTorch, and 1015.00 MiB is reserved by PyTorch but unallocated.\n", 1,
	 "smaller inference batch", NULL, NULL, "36 of 47 GiB are its own"},
	{"ms-swift#9403", "megatron sft --model_type qwen3_moe --train_type lora --tensor_model_parallel_size 4 --micro_batch_size 1\n"
			  "RuntimeError: NPU out of memory. Tried to allocate 26.44 GiB (NPU 2; 60.96 GiB total capacity; 30.23 GiB already allocated; 30.23 GiB current active; 25.36 GiB free; 33.08 GiB reserved in total by PyTorch)\n", 1,
	 "--recompute", "FSDP", NULL, "a command of another program's trainer"},
	/* modelscope/ms-swift swift/trainers/arguments.py: gradient_checkpointing: bool = True */
	{"swift's default", "swift sft --model Qwen2.5-7B-Instruct --train_type lora --per_device_train_batch_size 2\n" TRACE AT("/l/torch/autograd/graph.py", "_engine_run_backward", "return x")
			    NEW("1.00 GiB", "79.32 GiB", "0.50 GiB", "77.00 GiB", "0.42 GiB"), 6,
	 "per_device_train_batch_size 2 -> 1", "gradient_checkpointing", "set already, so not advised again: gradient checkpointing", "what it does by itself is no advice"},
	{"and switched off", "swift sft --model Qwen2.5-7B-Instruct --train_type lora --gradient_checkpointing false\n" TRACE AT("/l/torch/autograd/graph.py", "_engine_run_backward", "return x")
			     NEW("1.00 GiB", "79.32 GiB", "0.50 GiB", "77.00 GiB", "0.42 GiB"), 2,
	 "--gradient_checkpointing true", NULL, NULL, "the run's own option stands first"},
	{"AutoAWQ#543", "128GB ram; the error message is \"Loading checkpoint shards:  97%|#########6| 29/30 [00:35<00:01,  1.39s/it]Killed.\"\n", 6,
	 "host memory", NULL, NULL, "a kill in somebody's sentence"},
};

static void test_given(void **state)
{
	(void)state;
	crash_all_met(want, sizeof(want) / sizeof(want[0]));
}

/* The generation of a card by what people call it; one newer card, and nothing is said. */
static void test_named_card(void **state)
{
	static const char *const heads[] = {"on a Tesla T4, ", "GTX 1070 8GB, ", "two RTX 2080Ti, ", "on a Tesla M40, ", "GTX 1050 Ti, ", "V100 and A100, ", "1080 x 1920 pixels, ", ""};
	static const bool old[] = {true, true, true, true, true, false, false, false};

	(void)state;
	for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
		struct oom_crash_answer a;
		struct oom_crash c;
		char text[900];

		snprintf(text, sizeof(text), "%s" STEP NEW("800.00 MiB", "14.70 GiB", "400.00 MiB", "14.00 GiB", "50.00 MiB"), heads[i]);
		assert_true(oom_crash_decode(text, strlen(text), &c));
		oom_crash_answer(&c, &a);
		assert_int_equal(c.old_card, old[i]);
		assert_int_equal(among(&a, OOM_ANSWER_FIXES, "that card has no bfloat16"), old[i]);
	}
}

/* Which generation a card is of is the catalogue's word, but where its name has no number (TITAN-V) or one that newer
 * cards bear, too (Quadro RTX 6000). */
static void test_cards_of_the_catalogue(void **state)
{
	static const char *const open[] = {"TITAN-V", "TITAN-RTX", "TITAN-Xp", "RTX-6000-Turing", "RTX-5000-Turing", "RTX-4000-Turing"};
	struct oom_gpus table = {0};

	(void)state;
	assert_int_equal(oom_gpus_load(&table, NULL), OOM_OK);
	for (size_t i = 0; i < table.n; i++) {
		const struct oom_gpu *const g = &table.items[i];
		bool old = g->compute_capability > 0 && g->compute_capability < 8;
		struct oom_crash c;
		char text[900];

		for (size_t k = 0; k < sizeof(open) / sizeof(open[0]); k++)
			old = old && strcmp(g->name, open[k]) != 0;
		snprintf(text, sizeof(text), "on a %s, " STEP NEW("800.00 MiB", "14.70 GiB", "400.00 MiB", "14.00 GiB", "50.00 MiB"), g->name);
		assert_true(oom_crash_decode(text, strlen(text), &c));
		if (c.old_card != old)
			fail_msg("%s: compute capability %.1f", g->name, g->compute_capability);
	}
	oom_gpus_release(&table);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_given), cmocka_unit_test(test_named_card), cmocka_unit_test(test_cards_of_the_catalogue)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Answers where nobody's program shows: what was missing, what helps whatever ran, what a model works on, what the line
 * that failed makes, what the run's own command says. Texts of our own in the form of public threads (named per row). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "oomplan/diagnose.h"

#define CARD "CUDA out of memory. Tried to allocate 1.50 GiB (GPU 0; 23.50 GiB total capacity; 20.25 GiB already allocated; 1.25 GiB free; " \
	     "20.50 GiB reserved in total by PyTorch)\n"
#define AT(file, function, code) "  File \"" file "\", line 7, in " function "\n    " code "\n"
#define TRACE "Traceback (most recent call last):\n"

static const struct {
	const char *after, *text;
	size_t within;          /* among so many of the first fixes */
	const char *first;
	const char *never, *evidence;   /* NULL: not asked */
	enum oom_crash_phase phase;
	const char *reason;
} want[] = {
	/* ---- nobody says what ran ---- */
	{"Ilbotre", "RuntimeError: " CARD, 1, "less at once: a smaller batch", "halve the micro-batch",
	 "short by 256.0 MiB; 86 % of the memory", OOM_CRASH_UNKNOWN, "1.50 - 1.25 GiB; 20.25 of 23.50"},
	{"the same", "RuntimeError: " CARD, 4, "if the model was being loaded: ", NULL, NULL, OOM_CRASH_UNKNOWN, "a bare message leaves it open"},
	{"diegoantognini/pyGAT#56", "    all_combinations = torch.cat([first, second], dim=1)\nRuntimeError: " CARD, 1, "compare in pieces",
	 "being loaded", "all pairs", OOM_CRASH_UNKNOWN, "a line that computes loads nothing"},
	{"the same", "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 23.50 GiB total capacity; 22.25 GiB already allocated; 12.00 MiB free; "
		     "22.50 GiB reserved in total by PyTorch)\n", 4, "if it was training: recompute", NULL, "short by 8.0 MiB; 95 % of the memory are this process's own tensors, "
	 "no other process's: the request is small", OOM_CRASH_UNKNOWN, "what came before it fills the card"},
	{"Comfy-Org/ComfyUI#7440", "MPS backend out of memory (MPS allocated: 9.50 GiB, other allocations: 17.25 GiB, max allowed: 27.20 GiB). Tried to allocate "
				   "500.00 MiB on private pool.\n", 1, "restart the program", NULL, NULL, OOM_CRASH_UNKNOWN, "most of it is not PyTorch's"},
	{"facebookresearch/fairchem#1725", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 19.00 GiB. GPU 0 has a total capacity of 93.00 GiB of which "
					   "18.00 GiB is free. Including non-PyTorch memory, this process has 75.00 GiB memory in use. Of the allocated memory "
					   "56.00 GiB is allocated by PyTorch, and 18.00 GiB is reserved by PyTorch but unallocated.\n",
	 6, "expandable_segments:True", NULL, NULL, OOM_CRASH_UNKNOWN, "18 GiB free and 18 GiB idle hold 19, where segments can expand"},
	{"meijieru/crnn.pytorch#37", TRACE AT("crnn.py", "step", "cost.backward()") "RuntimeError: cuda runtime error (2) : out of memory at THCStorage.cu:66\n", 1,
	 "halve the micro-batch", "autocast", NULL, OOM_CRASH_BACKWARD, "a PyTorch of 2018 has none"},
	/* ---- what the model works on ---- */
	{"NVlabs", TRACE AT("infer_image.py", "<module>", "out = net(img)") AT("models/unet.py", "forward", "x = self.up(x)") "RuntimeError: " CARD, 3,
	 "smaller images: scale them down", "device_map", NULL, OOM_CRASH_INFERENCE, "a script that infers, by its name; images have no prompts"},
	{"k2-fsa/ZipVoice#146", TRACE AT("zipvoice/train.py", "train_one_epoch", "loss = f(batch)") AT("zipvoice/models/speech.py", "forward", "x = self.enc(mel)") "RuntimeError: " CARD,
	 3, "shorter recordings", "smaller images", NULL, OOM_CRASH_FORWARD, "recordings are what can be shorter"},
	{"leggedrobotics/legged_gym#5", "python legged_gym/scripts/train.py --task=a --num_envs 4096 --headless\n" TRACE AT("legged_gym/envs/robot.py", "__init__", "super().__init__(cfg)")
					"RuntimeError: CUDA error: out of memory\n", 2, "--num_envs 4096 -> 2048", "FSDP", NULL, OOM_CRASH_INIT, "environments are what there are many of"},
	{"openmm/openmm#3975", TRACE AT("npt.py", "<module>", "sim.step(steps)") "openmm.OpenMMException: Error creating array pairs: CUDA_ERROR_OUT_OF_MEMORY (2)\n", 1,
	 "fewer cells, particles, atoms", "training", NULL, OOM_CRASH_UNKNOWN, "a class of another package is no PyTorch program"},
	/* ---- what the line makes ---- */
	{"hugochan/IDGL#8", TRACE AT("src/main.py", "train", "a = learn(x)") AT("src/layers/learn.py", "forward", "a = torch.matmul(h, h.transpose(-1, -2))") "RuntimeError: " CARD, 1,
	 "compare in pieces", NULL, "all pairs", OOM_CRASH_FORWARD, "a product with itself is of all pairs"},
	{"iworldtong/text_gcn.pytorch#1", TRACE AT("train.py", "<module>", "model = model.cuda()")
					  "RuntimeError: CUDA out of memory. Tried to allocate 28.25 GiB (GPU 0; 15.75 GiB total capacity; 47.00 MiB already allocated; "
					  "14.50 GiB free; 64.00 MiB reserved in total by PyTorch)\n",
	 1, "one weight of the model is larger than the card", "score matrix", "1.8 times what there is", OOM_CRASH_TO_DEVICE, "no attention runs while a model is moved"},
	{"microsoft/onnxruntime#9939", "RUNTIME_EXCEPTION : Non-zero status code returned while running FusedMatMul node. Name:'M_FusedMatMulAndScale' Status Message: "
				       "Failed to allocate memory for requested buffer of size 8388608000\n", 3,
	 "arena_extend_strategy", NULL, "attention's scores", OOM_CRASH_INFERENCE, "the node is named"},
	{"tensorflow/tensorflow#17669", "ResourceExhaustedError: OOM when allocating tensor with shape[1,5000,3600,3]\n", 1, "5000 x 3600 to 2500 x 1800", NULL,
	 "1 image of 5000 x 3600 pixels", OOM_CRASH_UNKNOWN, "rows and columns of a picture"},
	{"pyg-team/pytorch_geometric#8316", "File /v/site-packages/torch_geometric/nn/conv/gat_conv.py:310, in message(self, x_j, alpha)\n    308 \n"
					    "    309     def message(self, x_j: Tensor, alpha: Tensor) -> Tensor:\n--> 310         return alpha.unsqueeze(-1) * x_j\n    311 \n"
					    "OutOfMemoryError: " CARD, 1, "NeighborLoader", "being loaded", "a graph's messages", OOM_CRASH_FORWARD, "notebooks show the function below its file"},
	/* ---- what the command says ---- */
	{"sgl-project/sglang#4489", "python3 -m sglang.launch_server --model-path /m/Qwen2.5-72B-Instruct --tp 2 --mem-fraction-static 0.8 --quantization gptq_marlin\n"
				    AT("/l/sglang/srt/model_executor/model_runner.py", "initialize", "self.init_cuda_graphs()") "Exception: Capture cuda graph failed: " CARD, 1,
	 "--mem-fraction-static 0.8 -> 0.76", "--quantization", "the capture of CUDA graphs", OOM_CRASH_INIT, "quantised weights of two cards are not too large for one"},
	{"hiyouga/LLaMA-Factory#3500", "torchrun src/train_bash.py --deepspeed ds_zero2.json --model_name_or_path m/chatglm3-6b --finetuning_type full --per_device_train_batch_size 8\n"
				       "torch.cuda.OutOfMemoryError: " CARD, 1, "--per_device_train_batch_size 8 -> 4", "whatever the batch", NULL, OOM_CRASH_TRAIN_STEP,
	 "ZeRO divides the states among ranks that the text does not count"},
	{"google/flax#1406", "./run_clm_flax.py --per_device_train_batch_size=\"64\"\n" TRACE AT("./run_clm_flax.py", "main", "state = p_train_step(state, batch)")
			     "RuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 7534049824 bytes.\n", 1,
	 "--per_device_train_batch_size 64 -> 32", "gradient_accumulation_steps doubled", NULL, OOM_CRASH_TRAIN_STEP, "the Trainer does not run on JAX"},
	{"RPM-Robotics-Lab/sRGB-TIR#5", "UserWarning: volatile was removed. Use `with torch.no_grad():` instead.\n" TRACE AT("inference_batch.py", "<module>", "content = encode(images)")
					AT("networks.py", "forward", "return self.model(x)") "RuntimeError: " CARD, 2, "torch.no_grad()", NULL, NULL, OOM_CRASH_INFERENCE,
	 "a warning sets nothing"},
	/* ---- what a log is doing ---- */
	{"LambdaLabsML/examples#41", "Epoch 0: 100%|#| 209/209, global_step=208.0\nWriting checkpoint.\nKilled\n", 1, "hold less while it saves", "instead of gathering", NULL,
	 OOM_CRASH_SAVE, "whatever is done with a checkpoint but for reading it"},
	{"microsoft/Bringing-Old-Photos-Back-to-Life#127", "processing p001.TIF\nSkip p001.png due to an error:\n" CARD, 4, "smaller images", "DataLoader", NULL, OOM_CRASH_INFERENCE,
	 "files that are worked through on a card"},
	{"vllm-project/vllm#17250", "WARNING [profiling.py:245] The sequence length used for profiling (max_num_batched_tokens / max_num_seqs = 20000) is too short to hold the "
				    "multi-modal embeddings. This may cause inputs to fail during inference.\nERROR [engine.py:448] " CARD, 1, "limit_mm_per_prompt", NULL,
	 "trial of its largest batch", OOM_CRASH_INIT, "a warning speaks of what may happen elsewhere"},
	{"Linaqruf/kohya-trainer#148", "load StableDiffusion checkpoint\nloading u-net: ok\nsubprocess.CalledProcessError: Command '['python', 'train_network.py']' died with "
				       "<Signals.SIGKILL: 9>.\n", 1, "--lowram", "fsdp", NULL, OOM_CRASH_LOAD, "sd-scripts load to the card on request"},
	/* ---- one input after the other; the host's arrays; what is set by a shape ---- */
	{"Nightmare-n/DepthAnyVideo#16", "python run_infer.py --data_path ./demos/mammoth.mp4 --output_dir ./o/ --max_resolution 960\nRuntimeError: CUDA error: out of memory\n", 1,
	 "--max_resolution 960 -> 704", "device_map", NULL, OOM_CRASH_INFERENCE, "its own option before advice in general"},
	{"henry123-boy/SpaTrackerV2#32", "python inference.py --video_name=running --fps=3\n" CARD, 1, "fewer frames at a time", NULL, NULL, OOM_CRASH_INFERENCE, "one clip has no batch"},
	{"MahmoudAshraf97/whisper-diarization#286", TRACE AT("/c/envs/ml/site-packages/ctc_aligner/utils.py", "generate_emissions", "e = model(x)")
						  AT("/c/envs/ml/site-packages/transformers/models/wav2vec2/modeling_wav2vec2.py", "forward", "o = self.wav2vec2(x)") "RuntimeError: " CARD, 2,
	 "shorter pieces", "prompts", NULL, OOM_CRASH_INFERENCE, "recordings have no prompts"},
	{"meta-llama/llama#455", "torchrun --nproc_per_node 1 example_text_completion.py --ckpt_dir llama-2-13b/ --max_batch_size 4\nRuntimeError: " CARD, 1,
	 "quantised to 8 or 4 bits", "smaller batch", "whatever the batch", OOM_CRASH_UNKNOWN, "26 GB of weights on a card of 23.5 GiB"},
	{"huggingface/diffusers#10994", "accelerate launch train_dreambooth_lora_flux.py --train_batch_size=2 --guidance_scale=1\n" CARD, 1,
	 "--train_batch_size 2 -> 1 with", "device_map", NULL, OOM_CRASH_TRAIN_STEP, "a word of drawing among a training's options"},
	{"starry-sky6688/MARL-Algorithms#61", "MemoryError: Unable to allocate 27.5 MiB for an array with shape (32, 400, 282) and data type float64\n", 1, "a smaller replay buffer", NULL,
	 "the array itself is small", OOM_CRASH_UNKNOWN, "what was kept before it"},
	{"theislab/single-cell-tutorial#85", "MemoryError: Unable to allocate 926. GiB for an array with shape (6794880, 36601) and data type float32\n", 1, "no common host holds it",
	 "give the process more", NULL, OOM_CRASH_UNKNOWN, "nobody has 926 GiB to spare"},
	{"sczhou/ProPainter#10", "python inference_x.py --video v.mp4\n" TRACE AT("inference_x.py", "<module>", "frames = to_tensors()(frames)")
				"RuntimeError: [enforce fail at CPUAllocator.cpp:64] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 10230727680 bytes.\n", 1,
	 "fewer frames at a time", NULL, NULL, OOM_CRASH_INFERENCE, "a whole clip in host memory"},
	{"ru1ven/KeypointFusion#3", AT("data/loader.py", "getCrop", "x = np.pad(x)") "MemoryError: Unable to allocate 58.0 GiB for an array with shape (176351, 176460) and data type uint16\n",
	 1, "array's shape", NULL, NULL, OOM_CRASH_DATA, "a loader of data loads no model"},
	{"nibtehaz/MultiResUNet#4", "ResourceExhaustedError: OOM when allocating tensor with shape[1,128,128,128,32] and type float on device:GPU:0 by allocator GPU_0_bfc\n"
				   "\t [[{{node training/Adadelta/gradients/zeros_70}}]]\n", 4, "smaller images", "batch_size in fit()", "a batch of one", OOM_CRASH_BACKWARD, "the shape begins with one"},
	{"keras-team/keras-io#709", "2021 W tensorflow/core/framework/op_kernel.cc:1680] Resource exhausted: failed to allocate memory\n" TRACE AT("net.py", "<module>", "model.fit(")
				   AT("/v/keras/engine/training.py", "fit", "logs = f(it)"), 1, "batch_size in fit()", "optax", NULL, OOM_CRASH_TRAIN_STEP, "TensorFlow's own kernel says so"},
	{"NVIDIA/cudf#6746", "----> 9 data = cudf.read_csv('data.csv')\nMemoryError: std::bad_alloc: CUDA error at: ../include/rmm/mr/device/cuda_memory_resource.hpp:68: "
			     "cudaErrorMemoryAllocation out of memory\n", 1, "dask-cudf", "training", NULL, OOM_CRASH_UNKNOWN, "a library of tables trains nothing"},
	{"sokrypton/ColabFold#186", "Could not predict test_c. Not Enough GPU memory? RESOURCE_EXHAUSTED: Out of memory while trying to allocate 7866899248 bytes.\n", 1, "fewer residues", "jax.lax",
	 NULL, OOM_CRASH_INFERENCE, "ColabFold's own question"},
	/* ---- what a set of texts nobody had seen showed ---- */
	{"axolotl#868", TRACE AT("/v/transformers/modeling_utils.py", "from_pretrained", "dispatch_model(model, **kwargs)")
	 AT("/v/accelerate/big_modeling.py", "dispatch_model", "model.to(device)") "torch.cuda.OutOfMemoryError: CUDA out of memory.\n", 1, "from_pretrained(dtype=", "map_location",
	 NULL, OOM_CRASH_LOAD, "the library's own loader is called from wherever"},
	{"kijai/ComfyUI-HunyuanVideoWrapper#503", "HyVideoDecode\nAllocation on device\n!!! Exception during processing !!! Allocation on device\n" TRACE
	 AT("/a/ComfyUI/execution.py", "execute", "await get_output_data()"), 1, "VAE Decode (Tiled)", NULL, "decoder of latents", OOM_CRASH_INFERENCE, "the node's name says that it decodes"},
	{"mmdetection3d#2116", "during training it runs out of memory during the 23rd epoch:\nRuntimeError: " CARD "Maybe I can turn off validation to save some memory.\n", 1,
	 "halve the micro-batch", "adapter alone", NULL, OOM_CRASH_TRAIN_STEP, "who saves memory writes no file"},
	{"vllm-project/vllm#29049", "# vllm OOM error when loading lora adapters\nERROR [v1/engine/core.py:842] logits_sort, logits_idx = logits.sort(dim=-1)\nERROR [v1/engine/core.py:842] "
	 CARD, 1, "gpu_memory_utilization lower", "the weights alone do not fit", NULL, OOM_CRASH_UNKNOWN, "an adapter is read beside a model that is there"},
	{"pytorch/xla#1735", "RuntimeError: Resource exhausted: From /job:tpu_worker/replica:0/task:0:\nAttempting to reserve 3.95G at the bottom of memory. That was not possible. "
	 "There are 1.92G free, 0B reserved, and 1.92G reservable.;\n", 1, "a smaller batch for each core", "optax", NULL, OOM_CRASH_UNKNOWN, "PyTorch's runtime of that time on TPUs"},
	{"EasyDeL#166", "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used 63.80G of 30.75G hbm. "
	 "Exceeded hbm capacity by 33.05G.\n\n  Largest program allocations in hbm:\n\n  1. Size: 2.00G\n     Operator: op_name=\"jit(casual_language_model_train_step)/jit(main)/"
	 "jvp(FlaxFalconForCausalLMModule)/transformer/h/0/self_attention/...qhd,...khd->...hqk/dot_general[precision=None]\"\n", 1, "attention that keeps no scores", NULL,
	 "->...hqk/dot_general", OOM_CRASH_COMPILE, "a long name's end says which operation it is"},
	{"mozilla/TTS#149", "during epoch 0/1000 with 32 batch size\ncuda out of memory. tried to allocate 78.88 mib (gpu 0; 3.95 gib total capacity; 2.99 gib already allocated; "
	 "74.44 mib free; 557.82 mib cached)\n", 6, "this PyTorch has no settings", "max_split_size_mb", NULL, OOM_CRASH_TRAIN_STEP, "before there were any"},
	{"GraphSmote#4", "numpy.core._exceptions.MemoryError: Unable to allocate 39.6 GiB for an array with shape (103106, 103106) and data type float32\n", 1, "a sparse form of that matrix",
	 NULL, "all pairs of 103106 things", OOM_CRASH_UNKNOWN, "a square is no count of samples"},
	{"nnUNet#2213", "# while doing preprocessing I run into this exception\nnnUNet: numpy.core._exceptions._ArrayMemoryError: Unable to allocate 1.61 GiB for an array with shape (753, 536, 536) "
	 "and data type float64\n", 1, "-np 2 when preprocessing", NULL, NULL, OOM_CRASH_DATA, "said in one word"},
	{"TouchNet#100", "torchrun train.py --dataset_batchsize 1 --dataset_audio_seqlen 8192 --epochs 3\nRuntimeError: NPU out of memory. Tried to allocate 5.03 GiB (NPU 3; 60.96 GiB total "
	 "capacity; 49.47 GiB already allocated; 49.47 GiB current active; 1.32 GiB free; 57.55 GiB reserved in total by PyTorch)\n", 5, "--dataset_audio_seqlen 8192 -> 4096", NULL,
	 NULL, OOM_CRASH_TRAIN_STEP, "a batch of one leaves the length"},
	{"tensorflow#28393", TRACE AT("/m/object_detection/model_main.py", "main", "tf.estimator.train_and_evaluate(e)")
	 "ResourceExhaustedError: OOM when allocating tensor with shape[52,64,480,300] and type float on device:GPU:0 by allocator GPU_0_bfc\n", 1, "train_config of pipeline.config",
	 "fit()", NULL, OOM_CRASH_TRAIN_STEP, "the API's options stand in one file"},
	{"Mask_RCNN", TRACE AT("/m/mrcnn/model.py", "train", "self.keras_model.fit_generator(")
	 "ResourceExhaustedError: OOM when allocating tensor with shape[2,256,512,512] and type float on device:GPU:0 by allocator GPU_0_bfc\n", 1, "IMAGES_PER_GPU lower", "fit()", NULL,
	 OOM_CRASH_TRAIN_STEP, "its options stand in a class of the run"},
	{"traiNNer#50", "# \"CUDA out of memory. Tried to allocate 1.50 GiB\" when trying to validate\n  model: srragan, 512x512 images\n  batch_size: 8\nRuntimeError: " CARD, 1, "validation images one at a time", "batch_size 8 -> 4",
	 NULL, OOM_CRASH_EVAL, "a title that quotes the message goes on behind it"},
	{"FFDNet_pytorch#4", "While in the training session it took only 1GB, but when it tries to validate the error rises\nRuntimeError: " CARD, 1, "a smaller evaluation batch",
	 "gradient accumulation", NULL, OOM_CRASH_EVAL, "training went on, its validation failed"},
	{"mlc-ai/mlc-llm#974", "vulkan_buffer.cc:61: InternalError: Check failed: (__e == VK_SUCCESS) is false: Vulkan Error, code=-2: VK_ERROR_OUT_OF_DEVICE_MEMORY\n", 3,
	 "if it was not training", NULL, NULL, OOM_CRASH_UNKNOWN, "Vulkan without ggml"},
	{"ms-swift#2753", "MAX_PIXELS=602112 swift sft --model_type qwen2-vl-7b-instruct --sft_type lora --num_train_epochs 3\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate "
	 "34.83 GiB. GPU 0 has a total capacity of 44.55 GiB of which 22.25 GiB is free.\n", 1, "MAX_PIXELS 602112 -> 301056", NULL, NULL, OOM_CRASH_TRAIN_STEP, "the run's own limit of its images"},
	{"comfyui_segment_anything#37", "Error occurred when executing GroundingDinoSAMSegment (segment anything):\n\nAllocation on device 0 would exceed allowed memory. (out of memory)\n"
	 "Currently allocated : 10.88 GiB\nRequested : 768.00 MiB\nDevice limit : 11.73 GiB\nFree (according to CUDA): 18.25 MiB\n", 1, "--lowvram", "VAE Decode", "a node's own model",
	 OOM_CRASH_INFERENCE, "a node that decodes nothing"},
	{"sd-scripts#648", "pretrained_model_name_or_path = \"stable-diffusion-xl\"\nnetwork_module = \"networks.lora\"\n    return t.to(device, dtype if t.is_floating_point() or t.is_complex() "
	 "else None, non_blocking)\ntorch.cuda.OutOfMemoryError: " CARD, 1, "--lowram", "one batch or piece of the data", "by weights", OOM_CRASH_TO_DEVICE, "a module moves its weights"},
	{"CogDL#370", "# with 6M nodes, 8M edges\n" TRACE AT("emb.py", "<module>", "outputs = generator(edge_index, x=x)") AT("/v/cogdl/trainer/trainer.py", "run", "self.train(model_w)")
	 "RuntimeError: " CARD, 1, "a part of the graph at a time", NULL, NULL, OOM_CRASH_TRAIN_STEP, "a trainer.py of graphs has no vocabulary"},
	{"selfmask#11", "Process finished with exit code 137 (interrupted by signal 9:SIGKILL)\n", 1, "give the process more host memory", "docker", NULL, OOM_CRASH_UNKNOWN, "an IDE's own words"},
	{"MP-SENet#37", "# when inferencing with 60secs file\ntorch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate **137.36 GiB.** GPU 0 has a total capacity of 47.54 GiB of which "
	 "44.17 GiB is free.\n", 1, "make that one tensor smaller", NULL, NULL, OOM_CRASH_INFERENCE, "a number in bold"},
	{"espnet#2575", "When I tried to synthesize a second sentence, I ran out of CUDA memory.\nRuntimeError: " CARD, 3, "batch", NULL, NULL, OOM_CRASH_INFERENCE, "who synthesizes infers"},
	{"RLAfford#5", "python train.py --algo=ppo_pc_pure --rl_device=cuda:0\n" TRACE AT("ppo/ppo.py", "update", "loss.backward()") "RuntimeError: " CARD, 1, "environments", NULL, NULL,
	 OOM_CRASH_BACKWARD, "a policy learns from environments"},
	{"StreamDiffusion#161", "stream = accelerate_with_tensorrt(stream, \"engines\", max_batch_size=4)\n[W] skipping tactic 0 due to insufficient memory on requested size of 11580055552 "
	 "detected for tactic 0x0000000000000000.\n", 1, "max_batch_size 4 -> 2", NULL, NULL, OOM_CRASH_COMPILE, "the build's own batch"},
	/* ---- a batch of one was tried ---- */
	{"MCG-NJU/TDN#32", "CUDA out of memory, even when batch_size=1\npython train.py --batch_size 8 --crop_size 512\n" TRACE AT("train.py", "train", "loss.backward()") "RuntimeError: " CARD, 2,
	 "--crop_size 512 -> 384", "batch", "a batch of one", OOM_CRASH_BACKWARD, "the command's batch of 8 was given up"},
	{"the same", "I reduced the batch size from 8 to 4, 2 and even 1. I get the same error.\nRuntimeError: " CARD, 1, "less at once: shorter sequences", "smaller batch", NULL,
	 OOM_CRASH_UNKNOWN, "no batch is left to halve"},
	{"the same", "Predict runs out of memory. Batch size 1 fails as well.\nRuntimeError: " CARD, 6, "shorter inputs", "smaller inference batch", NULL, OOM_CRASH_INFERENCE, "of inference too"},
	{"the same", "It works with batch size 1 but not with 2\nRuntimeError: " CARD, 1, "a smaller batch", NULL, NULL, OOM_CRASH_UNKNOWN, "one fits: what failed had more"},
	{"the same", "Training with batch size 4 on 1 GPU still fails\n" TRACE AT("train.py", "train", "loss.backward()") "RuntimeError: " CARD, 1, "batch size 4 -> 2", NULL, NULL, OOM_CRASH_BACKWARD,
	 "one card is no batch of one"},
	{"the same", "Try reducing the batch size to 1\n" TRACE AT("train.py", "train", "loss.backward()") "RuntimeError: " CARD, 6, "recompute", NULL, NULL, OOM_CRASH_BACKWARD, "advice"},
	{"Lung_Segmentation#7", "I train it and get CUDA out of memory. My batch size is 1 and my GPU has 8GB. Have you had this, and if so, how did you solve it?\n"
	 "The error happens when running train.py\n", 3, "smaller images", "halve", "a batch of one", OOM_CRASH_TRAIN_STEP, "another sentence's words of help"},
	{"light-weight-refinenet#41", "I set the Batch_Size (config.py) to [1] * 3, it also can't work.\n" TRACE AT("src/train.py", "train", "loss.backward()") "RuntimeError: " CARD, 2,
	 "smaller images", "halve", "a batch of one", OOM_CRASH_BACKWARD, "the file stands between name and value"},
	{"Diffusion-based-Segmentation#14", "i have set the batch size =1, however, the system still show CUDA error out of memory.\n", 1, "less at once: ", "cells, particles", NULL,
	 OOM_CRASH_UNKNOWN, "who has batches runs no simulation"},
	/* ---- settings that the line names ---- */
	{"XueFuzhao", TRACE AT("video/extract.py", "extract", "clip = net(clip[:, :FLAGS.max_n_frames])") "RuntimeError: " CARD, 1, "less of what the line's FLAGS.max_n_frames sets", NULL, NULL,
	 OOM_CRASH_INFERENCE, "a script's own flag"},
	{"the same", TRACE AT("train.py", "train", "y = net(x[:, :cfg.DATA.IMG_SIZE])") "RuntimeError: " CARD, 4, "less of what the line's cfg.DATA.IMG_SIZE sets", NULL, NULL, OOM_CRASH_TRAIN_STEP,
	 "a side scales what a training keeps"},
	{"the same", TRACE AT("train.py", "train", "y = net(x, cfg.DATA.NAME, self.batch_size(x))") "RuntimeError: " CARD, 1, "halve", "the line's", NULL, OOM_CRASH_TRAIN_STEP, "neither a name nor a call"},
	/* ---- programs ---- */
	{"volcengine/verl", "python3 -m verl.trainer.main_ppo actor_rollout_ref.actor.use_dynamic_bsz=True actor_rollout_ref.actor.ppo_max_token_len_per_gpu=16384\n" TRACE
	 AT("/w/verl/workers/actor/dp_actor.py", "update_policy", "loss.backward()") "RuntimeError: " CARD, 1, "ppo_max_token_len_per_gpu 16384 -> 8192", "micro_batch_size", NULL, OOM_CRASH_BACKWARD,
	 "with dynamic batches the micro-batch size is not read"},
	{"axolotl", "axolotl train config.yml\n" TRACE AT("/usr/lib/python3.10/site-packages/deepspeed/runtime/engine.py", "backward", "self.optimizer.backward(loss)") "RuntimeError: " CARD, 1,
	 "micro_batch_size halved", "train_micro_batch_size_per_gpu", NULL, OOM_CRASH_BACKWARD, "its command, above frames of what it is built on"},
	{"llama.cpp", "ggml_vulkan: Device memory allocation of size 1073741824 failed.\n./main -m model.gguf -ngl 33 -c 8192\n", 1, "-ngl lower", NULL, NULL, OOM_CRASH_UNKNOWN,
	 "weights or cache: nobody says which"},
	{"facebookresearch/segment-anything", TRACE AT("demo.py", "<module>", "predictor.set_image(image)")
	 AT("/usr/lib/python3.10/site-packages/segment_anything/predictor.py", "set_image", "self.set_torch_image(x, image.shape[:2])")
	 AT("/usr/lib/python3.10/site-packages/segment_anything/predictor.py", "set_torch_image", "self.features = self.model.image_encoder(x)") "RuntimeError: " CARD, 1,
	 "a smaller model (vit_b", "points_per_batch", "one size", OOM_CRASH_INFERENCE, "its encoder sees 1024 x 1024, whatever the image and the points"},
	{"InvokeAI", "[InvokeAI]::ERROR --> Error while invoking session 6f, invocation 8a (l2i): " CARD, 1, "force_tiled_decode", NULL, "decoder of latents", OOM_CRASH_INFERENCE,
	 "latents to image, by the node's type"},
	{"ComfyUI", "got prompt\nWarning: Ran out of memory when regular VAE encoding, retrying with tiled VAE encoding.\nRuntimeError: " CARD, 1, "a smaller image", "VAE Decode (Tiled)",
	 "makes latents of an image", OOM_CRASH_INFERENCE, "nothing is decoded yet"},
	{"ollama", "I load several models one after another with ollama: llama3:8b, then qwen2.5:14b\nError: llama runner process has terminated: cudaMalloc failed: out of memory\n", 1,
	 "OLLAMA_MAX_LOADED_MODELS=1, or keep_alive 0", NULL, NULL, OOM_CRASH_INFERENCE, "the one before is still there"},
	{"ollama/ollama#2752", "a set of tests, each test loading a different model using ollama\nllama_new_context_with_model: n_ctx = 4096\nCUDA error: out of memory\n", 1, "keep_alive 0", NULL, NULL,
	 OOM_CRASH_INFERENCE, "each loads another"},
	{"the same", "I tried several models with ollama, same result\nError: llama runner process has terminated: cudaMalloc failed: out of memory\n", 6, "num_gpu", "keep_alive", NULL,
	 OOM_CRASH_INFERENCE, "each by itself"},
	/* ---- what people count, what they say of their batches ---- */
	{"a title", "It crashes at iteration 4900\nRuntimeError: " CARD, 1, "halve the micro-batch", NULL, NULL, OOM_CRASH_TRAIN_STEP, "who counts iterations trains"},
	{"the same", "It crashes after 4900 iterations\nRuntimeError: " CARD, 1, "halve the micro-batch", NULL, NULL, OOM_CRASH_TRAIN_STEP, "the number before the word"},
	{"pytorch-mask-rcnn#95", "model.train_model(a, b, epochs=5)\nRuntimeError: CUDA error: out of memory\nWhy does my GPU keep using more memory with each iteration?\n", 1, "keep numbers, not graphs",
	 NULL, "grows from step to step", OOM_CRASH_TRAIN_STEP, "who watched it says so"},
	{"lhoyer/MIC#56", "But when training proceeds to the second validation it occurs: RuntimeError: CUDA out of memory\n", 2, "evaluation batch", "halve", NULL, OOM_CRASH_EVAL,
	 "training was left behind"},
	{"RCPS#2", "Training is good but on the fifth iteration evaluation loop started, the error always arises: CUDA out of memory\n", 2, "evaluation batch", "halve", NULL, OOM_CRASH_EVAL,
	 "what began is what failed"},
	{"LLaRA#8", "# a single GPU for training\nI have changed the batchsize from 4 to 1, but I am still getting CUDA out of memory. I fine-tune LLAMA 7B with LORA\n", 6, "quantised", "halve",
	 "a batch of one", OOM_CRASH_TRAIN_STEP, "what is left is the base"},
	{"the same", "on every iteration of my loop\nRuntimeError: " CARD, 1, "less at once", NULL, NULL, OOM_CRASH_UNKNOWN, "no count"},
	{"ROCm/MIOpen", "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 3.00 GiB. GPU 0 has a total capacity of 23.98 GiB of which 1.20 GiB is free. Of the allocated memory "
	 "10.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated.\n", 1, "rocm-smi", NULL, "by others, or by this process's own libraries", OOM_CRASH_UNKNOWN,
	 "23.98 - 1.20 - 11.00 GiB are nobody's"},
};

static bool holds(const char *const *texts, size_t n, const char *word)
{
	for (size_t i = 0; i < n; i++)
		if (strstr(texts[i], word))
			return true;
	return false;
}

static bool fixes(const struct oom_crash_answer *a, size_t within, const char *word)
{
	const char *texts[OOM_ANSWER_FIXES];

	for (size_t i = 0; i < a->n_fix; i++)
		texts[i] = a->fix[i];
	return holds(texts, a->n_fix < within ? a->n_fix : within, word);
}

static bool says(const struct oom_crash_answer *a, const char *word)
{
	const char *texts[OOM_ANSWER_EVIDENCE];

	for (size_t i = 0; i < a->n_evidence; i++)
		texts[i] = a->evidence[i];
	return holds(texts, a->n_evidence, word);
}

static void test_forms(void **state)
{
	int bad = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		struct oom_crash c;
		struct oom_crash_answer a;

		assert_true(oom_crash_decode(want[i].text, strlen(want[i].text), &c));
		oom_crash_answer(&c, &a);
		if (c.phase != want[i].phase) {
			print_error("%s (%s): phase \"%s\"\n", want[i].after, want[i].reason, oom_crash_phase_str(c.phase));
			bad++;
		}
		if (!fixes(&a, want[i].within, want[i].first)) {
			print_error("%s (%s): \"%s\" is not among the first, which begin with \"%s\"\n", want[i].after, want[i].reason, want[i].first, a.fix[0]);
			bad++;
		}
		if (want[i].never && fixes(&a, OOM_ANSWER_FIXES, want[i].never)) {
			print_error("%s (%s): \"%s\" is offered\n", want[i].after, want[i].reason, want[i].never);
			bad++;
		}
		if (want[i].evidence && !says(&a, want[i].evidence)) {
			print_error("%s (%s): no word of \"%s\"\n", want[i].after, want[i].reason, want[i].evidence);
			bad++;
		}
	}
	assert_int_equal(bad, 0);
}

/* How sure it is, and what else it may be. */
static void test_causes(void **state)
{
	static const char pieces[] = "CUDA out of memory. Tried to allocate 1.50 GiB (GPU 0; 23.50 GiB total capacity; 14.25 GiB already allocated; 0.25 GiB free; "
				     "22.50 GiB reserved in total by PyTorch)\n",
			  hip[] = "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 3.00 GiB. GPU 0 has a total capacity of 23.98 GiB of which 1.20 GiB is free. Of the "
				  "allocated memory 10.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated.\n";
	char text[600];
	struct oom_crash c;

	(void)state;
	snprintf(text, sizeof(text), "Training with batches of variable length\nRuntimeError: %s", pieces);
	assert_true(oom_crash_decode(text, strlen(text), &c));
	assert_int_equal(c.cause[0].cause, OOM_CAUSE_FRAGMENTATION);
	assert_int_equal(c.cause[1].cause, OOM_CAUSE_LONGEST_BATCH);
	snprintf(text, sizeof(text), "Training\nRuntimeError: %s", pieces);
	assert_true(oom_crash_decode(text, strlen(text), &c));
	assert_int_equal(c.cause[0].cause, OOM_CAUSE_FRAGMENTATION);
	assert_int_not_equal(c.cause[1].cause, OOM_CAUSE_LONGEST_BATCH);
	/* ROCm's sentence does not say what this process holds */
	assert_true(oom_crash_decode(hip, strlen(hip), &c));
	assert_int_equal(c.cause[0].cause, OOM_CAUSE_OTHER_PROCESS);
	assert_true(c.cause[0].confidence < 0.7);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_forms), cmocka_unit_test(test_causes)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

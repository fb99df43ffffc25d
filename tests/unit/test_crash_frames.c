/* Crashes in our own words that show one rule each of the reading of frames, of the program and of the answer: what is
 * wanted follows from the text alone, the row's first string says how. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "oomplan/diagnose.h"

/* PyTorch's sentence of 2.5 with the request, what is free, what this process holds, allocated and stranded, in GiB of 31.50. */
#define CUDA(tried, left, own, held, idle) \
	"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate " tried " GiB. GPU 0 has a total capacity of 31.50 GiB of which " left \
	" GiB is free. Including non-PyTorch memory, this process has " own " GiB memory in use. Of the allocated memory " held \
	" GiB is allocated by PyTorch, and " idle " GiB is reserved by PyTorch but unallocated.\n"
#define TRACE "Traceback (most recent call last):\n"
#define AT(file, function, code) "  File \"" file "\", line 7, in " function "\n    " code "\n"

static const struct {
	const char *why, *text;
	enum oom_crash_phase phase;
	const char *program;
	const char *said;               /* in the grounds of the first cause; NULL: not asked */
	const char *first, *never;      /* in the first fix, in any; NULL: not asked */
} want[] = {
	{"a loop over a loader loads no weights", TRACE AT("/w/fit/loop.py", "_run_loader", "scores = net(batch)") CUDA("2.25", "0.90", "30.40", "28.90", "0.20"),
	 OOM_CRASH_UNKNOWN, "", NULL, NULL, NULL},
	{"a loader that reads a model does", TRACE AT("/w/fit/loop.py", "weights_loader", "x = build(path)") CUDA("2.25", "0.90", "30.40", "28.90", "0.20"),
	 OOM_CRASH_LOAD, "", NULL, NULL, NULL},
	{"a copy to the host asks for nothing of the card",
	 TRACE AT("/w/prep/pictures.py", "main", "z = vae.encode(frames).mode().to(\"cpu\")") CUDA("3.00", "0.90", "30.40", "28.90", "0.20"),
	 OOM_CRASH_UNKNOWN, "", NULL, NULL, NULL},
	{"a copy to the card does", TRACE AT("/w/prep/pictures.py", "main", "z = frames.to(\"cuda\")") CUDA("3.00", "0.90", "30.40", "28.90", "0.20"),
	 OOM_CRASH_TO_DEVICE, "", NULL, NULL, NULL},
	{"what is called at top level by a name of the script's own is a model as a rule",
	 TRACE AT("/w/try/once.py", "<module>", "scores = net(pictures)") CUDA("1.20", "0.90", "30.40", "28.90", "0.20"),
	 OOM_CRASH_FORWARD, "", NULL, NULL, NULL},
	{"a tensor's constructor at top level is none", TRACE AT("/w/try/once.py", "<module>", "scores = torch.zeros(n, n)") CUDA("1.20", "0.90", "30.40", "28.90", "0.20"),
	 OOM_CRASH_TO_DEVICE, "", NULL, NULL, NULL},
	{"nothing stranded", TRACE AT("/w/fit/loop.py", "main", "loss.backward()") CUDA("1.20", "0.50", "30.40", "29.90", "0.20"),
	 OOM_CRASH_BACKWARD, "", "free and stranded", NULL, NULL},
	{"free and stranded would do together", TRACE AT("/w/fit/loop.py", "main", "loss.backward()") CUDA("1.20", "0.50", "30.40", "29.00", "1.10"),
	 OOM_CRASH_BACKWARD, "", "only in one piece", NULL, NULL},
	{"stranded alone would do", TRACE AT("/w/fit/loop.py", "main", "loss.backward()") CUDA("1.20", "0.50", "30.40", "28.50", "1.60"),
	 OOM_CRASH_BACKWARD, "", "no piece of what is stranded", NULL, NULL},
	{"a script that is called train reads its data and its weights before it trains", "$ python train_graph.py --config a.yaml\nKilled\n",
	 OOM_CRASH_UNKNOWN, "", NULL, "host memory", NULL},
	{"a log that counts epochs does train", "$ python train_graph.py --config a.yaml\nEpoch 3: loss 0.31\nKilled\n", OOM_CRASH_TRAIN_STEP, "", NULL, "DataLoader workers", NULL},
	{"ggml-opencl.cpp's guess below an error of OpenCL, KoboldCpp's banner (LostRuins/koboldcpp#255)",
	 "Welcome to KoboldCpp - Version 1.54\nggml_opencl: clCreateBuffer(ctx, flags, n, NULL, &err) error -4 at ggml-opencl.cpp:2210\n"
	 "You may be out of VRAM. Please check if you have enough.\n", OOM_CRASH_UNKNOWN, "koboldcpp", NULL, "--gpulayers", "-ngl"},
	{"a graph's node below a predict()", "Traceback (most recent call last):\n" AT("show.py", "detect", "self.keras_model.predict(x)") AT("/v/keras/engine/training.py", "predict", "steps=n)")
	 "ResourceExhaustedError: OOM when allocating tensor with shape[1,64,512,512] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc\n"
	 "\t [[Node: conv1/convolution = Conv2D[T=DT_FLOAT]]]\n", OOM_CRASH_INFERENCE, "keras", NULL, "smaller inputs", "fit()"},
	{"a model that is made, where a page took the underscores", "Traceback (most recent call last):\nFile \"faster_whisper\\transcribe.py\", line 125, in init\n"
	 "RuntimeError: CUDA failed with error out of memory\n", OOM_CRASH_LOAD, "whisper", NULL, "int8", NULL},
	{"a training that ended saves", "{'loss': 0.61, 'epoch': 1.0}\n{'train_runtime': 2332.5, 'train_loss': 0.628, 'epoch': 1.0}\nKilled\n", OOM_CRASH_SAVE, "", NULL, NULL, NULL},
	{"gradients of what is explained", TRACE AT("/v/site-packages/captum/_utils/gradient.py", "compute_gradients", "g = torch.autograd.grad(o, i)")
	 CUDA("2.00", "0.50", "30.40", "20.00", "0.20"), OOM_CRASH_INFERENCE, "captum", NULL, "internal_batch_size", "micro-batch"},
	{"a compiled library's constructor is nobody's set-up", TRACE AT("look.py", "predict", "y = model(x)") "  File \"cupy/core/core.pyx\", line 150, in cupy.core.core.ndarray.__init__\n"
	 "cupy.cuda.memory.OutOfMemoryError: out of memory to allocate 154880000 bytes (total 7112607232 bytes)\n", OOM_CRASH_INFERENCE, "", NULL, NULL, NULL},
	{"a demonstration's forward pass", TRACE AT("/w/demo_pair.py", "<module>", "o = model.forward(d)") AT("/w/net.py", "forward", "x = self.mix(x)")
	 CUDA("2.00", "0.50", "30.40", "20.00", "0.20"), OOM_CRASH_INFERENCE, "", NULL, "inference batch", "micro-batch"},
	{"options that only who draws gives", "python enlarge.py --init-img in --outdir out\n" CUDA("2.00", "0.50", "30.40", "20.00", "0.20"), OOM_CRASH_INFERENCE, "", NULL, "smaller images", "micro-batch"},
	{"and who trains", "python enlarge.py --lr 0.01 --epochs 9\n" CUDA("2.00", "0.50", "30.40", "20.00", "0.20"), OOM_CRASH_TRAIN_STEP, "", NULL, "micro-batch", "inference batch"},
	{"Fooocus beside the webui whose parts it has", "  File \"/x/Fooocus/modules/async_worker.py\", line 9, in handler\n"
	 TRACE AT("/x/Fooocus/ldm_patched/modules/model_management.py", "load_model_gpu", "self.model_load(w)") CUDA("0.30", "0.01", "31.40", "31.10", "0.02"),
	 OOM_CRASH_LOAD, "fooocus", NULL, "--always-low-vram", "--medvram"},
	{"a server that warms a model up", "E0101 08:00:00.000001 7 backend_model_instance.cc:99] warmup error: Internal - OOM when allocating tensor with shape[64,3,200,200] and type float on "
	 "/job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc\n", OOM_CRASH_INIT, "triton-server", NULL, "instance_group", NULL},
	{"Ollama's frames of Go below a line of llama.cpp's", "llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache\n"
	 "goroutine 9 [running]:\ngithub.com/ollama/ollama/runner/llamarunner.(*Server).loadModel(0xc000130360)\n", OOM_CRASH_INIT, "ollama", NULL, "num_ctx", "-ngl"},
	{"llama.cpp's own line alone", "llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache\n", OOM_CRASH_INIT, "llama.cpp", NULL, "-c lower",
	 "num_ctx"},
	{"LMCache's pool is no share of the card", "LMCache WARNING: Failed to allocate memory for tensor(torch.Size([2, 16, 256, 512]), torch.float16) because no memory is available\n",
	 OOM_CRASH_INFERENCE, "vllm", NULL, "max_local_cpu_size", "gpu_memory_utilization"},
	{"a card that the model fills: no batch is small enough",
	 TRACE AT("chat.py", "main", "y = model.generate(x)") AT("site-packages/transformers/generation/utils.py", "generate", "y = self(x)") CUDA("0.03", "0.01", "31.30", "30.60", "0.05"),
	 OOM_CRASH_INFERENCE, "generate", NULL, "load_in_4bit", "gradient"},
	{"one with room beside the model: its prompts first",
	 TRACE AT("chat.py", "main", "y = model.generate(x)") AT("site-packages/transformers/generation/utils.py", "generate", "y = self(x)") CUDA("6.00", "3.01", "28.30", "27.60", "0.05"),
	 OOM_CRASH_INFERENCE, "generate", NULL, "batch of prompts", NULL},
	{"FramePack's slider (demo_gradio.py)", TRACE AT("/w/FramePack/demo_gradio.py", "worker", "x = sample_hunyuan(")
	 AT("/w/FramePack/diffusers_helper/models/hunyuan_video_packed.py", "forward", "h = self.attn(h)") CUDA("1.20", "0.50", "30.40", "29.90", "0.20"),
	 OOM_CRASH_INFERENCE, "framepack", NULL, "Preserved Memory", "enable_model_cpu_offload"},
	{"Wan's own script (README.md)", TRACE AT("/w/Wan2.2/generate.py", "generate", "video = pipe.generate(")
	 AT("/w/Wan2.2/wan/text2video.py", "generate", "n = self.model(x)") AT("/w/Wan2.2/wan/modules/model.py", "forward", "x = block(x)") CUDA("1.20", "0.50", "30.40", "29.90", "0.20"),
	 OOM_CRASH_INFERENCE, "wan", NULL, "--offload_model True --t5_cpu", "enable_model_cpu_offload"},
	{"a training with Wan's modules is not it", TRACE AT("/w/tune/wan_train.py", "main", "loss = step(batch)")
	 AT("/w/tune/wan/modules/model.py", "forward", "x = block(x)") CUDA("1.20", "0.50", "30.40", "29.90", "0.20"),
	 OOM_CRASH_FORWARD, "", NULL, "micro-batch", "--t5_cpu"},
	{"HunyuanVideo's own script (hyvideo/config.py)", TRACE AT("/w/HunyuanVideo/sample_video.py", "main", "out = sampler.predict(")
	 AT("/w/HunyuanVideo/hyvideo/inference.py", "predict", "s = self.pipeline(") CUDA("1.20", "0.50", "30.40", "29.90", "0.20"),
	 OOM_CRASH_INFERENCE, "hunyuan-video", NULL, "--use-cpu-offload", "enable_model_cpu_offload"},
	{"DPO's reference model (DPOConfig)", TRACE AT("/w/pref.py", "<module>", "trainer.train()")
	 AT("site-packages/trl/trainer/dpo_trainer.py", "_get_train_sampler", "x") AT("site-packages/torch/optim/adamw.py", "step", "self._init_group(g)") CUDA("1.20", "0.50", "30.40", "29.90", "0.20"),
	 OOM_CRASH_OPTIMIZER, "trl", NULL, "precompute_ref_log_probs=True", NULL},
	{"a context that cannot be made is no step", TRACE AT("/w/fit/run.py", "main", "trainer.fit(net)")
	 AT("site-packages/pytorch_lightning/trainer/trainer.py", "fit", "self.backend.setup(net)") AT("site-packages/torch/cuda/__init__.py", "set_device", "torch._C._cuda_setDevice(d)")
	 "RuntimeError: CUDA error: out of memory\n", OOM_CRASH_INIT, "lightning", NULL, NULL, NULL},
	{"boxes against boxes are a detector's loss", TRACE AT("/w/det/core/bbox/assigners/max_iou_assigner.py", "assign", "o = self.iou(a, b)")
	 CUDA("5.00", "0.50", "30.40", "25.00", "0.20"), OOM_CRASH_FORWARD, "", NULL, "micro-batch", "if it was"},
	{"a function that trains runs the model forward", TRACE AT("/w/det/base.py", "forward", "return self.forward_train(x)") AT("/w/det/two.py", "forward_train", "h = self.head(x)")
	 CUDA("1.20", "0.50", "30.40", "29.90", "0.20"), OOM_CRASH_FORWARD, "", NULL, "micro-batch", "if it was"},
	{"what was trained before does not train", TRACE AT("/w/MatchPretrainedNet/show.py", "main", "out = net(picture)") AT("/w/MatchPretrainedNet/net.py", "forward", "x = self.a(x)")
	 CUDA("1.20", "0.50", "30.40", "29.90", "0.20"), OOM_CRASH_FORWARD, "", NULL, "less at once", "micro-batch"},
	{"heads of counters say what is counted", "Evaluation  [2750/5000]  eta: 0:01:53  time: 0.05\n" CUDA("1.20", "0.50", "30.40", "29.90", "0.20"),
	 OOM_CRASH_EVAL, "", NULL, "evaluation batch", "micro-batch"},
	{"what is started says more than that it starts", "I get this when starting the training:\n" CUDA("1.20", "0.50", "30.40", "29.90", "0.20"), OOM_CRASH_TRAIN_STEP, "", NULL, "micro-batch", NULL},
	{"a server that starts is set up", "I get this when starting the server:\n" CUDA("1.20", "0.50", "30.40", "29.90", "0.20"), OOM_CRASH_INIT, "", NULL, NULL, "micro-batch"},
	{"a worker of the loader, below it the scheduler's kill",
	 "RuntimeError: DataLoader worker (pid(s) 77) exited unexpectedly\nslurmstepd: error: Detected 1 oom-kill event(s) in StepId=5.batch.\n",
	 OOM_CRASH_DATA, "", NULL, NULL, "if data was"},
	{"the thread that pins batches", TRACE AT("site-packages/batchgenerators/dataloading/augmenter.py", "results_loop", "item = pin_memory_of_all(item)")
	 "RuntimeError: CUDA error: out of memory\n", OOM_CRASH_DATA, "nnunet", NULL, "nnUNet_n_proc_DA", NULL},
	{"a detector's boxes against each other", "Epoch 3\n" TRACE AT("/w/det/mmdet/core/bbox/assigners/max_iou_assigner.py", "assign", "o = self.iou_calculator(a, b)")
	 AT("/w/det/mmdet/core/bbox/iou2d.py", "bbox_overlaps", "lt = torch.max(a[:, None], b[None])") CUDA("5.00", "0.50", "30.40", "25.00", "0.20"),
	 OOM_CRASH_FORWARD, "mmengine", NULL, "gpu_assign_thr", NULL},
	{"others hold the card, but there is room beside them", "Epoch 3\n" TRACE AT("/w/det/mmdet/core/bbox/assigners/max_iou_assigner.py", "assign", "o = self.iou_calculator(a, b)")
	 CUDA("5.00", "0.50", "9.40", "9.00", "0.20"), OOM_CRASH_FORWARD, "mmengine", "outside this process", "nvidia-smi", NULL},
	{"a whole graph has no batch", TRACE AT("/w/cells/net.py", "__train", "z = model(data)") AT("site-packages/torch_geometric/nn/conv/message_passing.py", "__lift__",
															"return src.index_select(0, index)")
	 CUDA("2.00", "0.50", "30.40", "28.00", "0.20"), OOM_CRASH_FORWARD, "pyg", NULL, "NeighborLoader", "halve"},
	{"observations in an array of the host's", TRACE AT("/w/play/go.py", "main", "model.learn(n)") AT("site-packages/stable_baselines3/ppo/ppo.py", "learn", "self.collect(n)")
	 AT("site-packages/stable_baselines3/common/buffers.py", "reset", "a = np.zeros(n)")
	 "numpy.core._exceptions.MemoryError: Unable to allocate 9.17 GiB for an array with shape (4096, 16, 3, 100, 128) and data type float32\n",
	 OOM_CRASH_TRAIN_STEP, "stable-baselines3", NULL, "buffer_size", NULL},
	{"relative attention of a speech encoder", "predict_ds.batch_size=1\n" TRACE AT("/w/NeMo/transcribe_speech.py", "main", "p = trainer.predict(m)")
	 AT("site-packages/nemo/collections/asr/attention.py", "forward", "matrix_bd = torch.matmul(q, p)") CUDA("12.00", "0.50", "30.40", "25.00", "0.20"),
	 OOM_CRASH_INFERENCE, "nemo-asr", NULL, "change_attention_model", "tensor-model-parallel"},
	{"a node's own decoder is a decoder", "got prompt\n" TRACE AT("/w/ComfyUI/nodes.py", "decode", "images = vae.decode(samples)")
	 AT("/w/ComfyUI/custom_nodes/Film/vae.py", "run", "x = self.blocks(x)") CUDA("3.00", "0.50", "30.40", "25.00", "0.20"),
	 OOM_CRASH_INFERENCE, "comfyui", NULL, "VAE Decode (Tiled)", NULL},
	{"states that an engine makes", TRACE AT("pretrain_gpt2.py", "main", "m = setup(a)") AT("site-packages/deepspeed/zero.py", "initialize_optimizer_states", "g = torch.zeros(n)")
	 CUDA("6.98", "2.60", "28.40", "27.90", "0.10"), OOM_CRASH_INIT, "megatron-deepspeed", NULL, "offload_optimizer", "quantised"},
	{"an image larger than the card's first map", TRACE AT("show.py", "main", "p = net(x)") AT("net.py", "forward", "x = self.conv(x)")
	 AT("site-packages/torch/nn/modules/conv.py", "_conv_forward", "return F.conv2d(x, w)") CUDA("33.00", "31.00", "0.30", "0.10", "0.05"),
	 OOM_CRASH_INFERENCE, "", NULL, "a smaller image", "micro-batch"},
	{"TPU's list without its head", "Program hbm requirement 10.96G:\n    HLO temp         10.96G\n  Largest program allocations in hbm:\n\n  1. Size: 8.77G\n",
	 OOM_CRASH_COMPILE, "", NULL, NULL, NULL},
	{"a script of one's own without the decorator", TRACE AT("show.py", "infer", "p = net(x)") AT("net.py", "forward", "x = self.mix(x)")
	 CUDA("3.00", "0.50", "30.40", "20.00", "0.20"), OOM_CRASH_INFERENCE, "", NULL, "fewer inputs", NULL},
	{"a step around a closure has the backward pass below it", TRACE AT("/w/fold/fit.py", "main", "trainer.fit(m)")
	 AT("site-packages/pytorch_lightning/loops/automatic.py", "_optimizer_step", "call(h)") AT("site-packages/deepspeed/engine.py", "backward", "self.o.backward(loss)")
	 CUDA("1.20", "0.50", "30.40", "29.90", "0.20"), OOM_CRASH_BACKWARD, "lightning", NULL, NULL, NULL},
	{"a folder of vLLM's is no request", "(EngineCore pid=9) ERROR [core.py:1] EngineCore failed to start.\n(EngineCore pid=9) ERROR [core.py:1]   File \"/l/vllm/v1/engine/core.py\", line 5, in run\n"
					       "(EngineCore pid=9) ERROR [core.py:1] " CUDA("1.20", "0.50", "30.40", "29.90", "0.20"), OOM_CRASH_INIT, "vllm", NULL, "gpu_memory_utilization", "micro-batch"},
	{"SGLang's pool of tokens", "RuntimeError: Decode out of memory. Try to lower your batch size.\nTry to allocate 148 tokens.\n\nsglang --mem-fraction-static 0.8\n",
	 OOM_CRASH_INFERENCE, "sglang", "the pool of tokens", "--mem-fraction-static 0.8 -> 0.9", NULL},
	{"SGLang's slots are a count", "RuntimeError: alloc_req_slots runs out of memory. Please set a smaller number for `--max-running-requests`.\n", OOM_CRASH_INFERENCE, "sglang",
	 "slots for requests", "--max-running-requests lower", "mem-fraction"},
	{"the best model is read beside the one that was trained", TRACE AT("fit.py", "main", "trainer.train()") AT("site-packages/transformers/trainer.py", "_inner_training_loop", "self._load_best_model()")
	 AT("site-packages/torch/serialization.py", "load", "return _load(f)") CUDA("0.06", "0.01", "31.30", "30.60", "0.05"), OOM_CRASH_LOAD, "trainer", NULL, "load_best_model_at_end=False", NULL},
	{"a notebook keeps what was made before", "OutOfMemoryError      Traceback (most recent call last)\nCell In[8], line 2\n----> 2 base = AutoModelForCausalLM.from_pretrained(name)\n\n"
						   CUDA("0.06", "0.01", "31.30", "30.60", "0.05"), OOM_CRASH_LOAD, "transformers", NULL, "restart the notebook's kernel", NULL},
	{"an engine that shards moved the whole model first", "[rank2]: " TRACE "[rank2]: " AT("tune.py", "main", "m = FSDP(m)") "[rank2]: " AT("/l/torch/distributed/fsdp/_init_utils.py", "_move_module_to_device", "f(p)")
	 "[rank2]: " CUDA("0.11", "0.03", "31.30", "30.90", "0.05"), OOM_CRASH_INIT, "fsdp", NULL, "sync_module_states", "quantised"},
	{"temporaries of all parameters", TRACE AT("fit.py", "train", "opt.step()") AT("site-packages/torch/optim/adamw.py", "_multi_tensor_adamw", "s = torch._foreach_sqrt(v)")
	 CUDA("0.80", "0.50", "30.40", "29.90", "0.20"), OOM_CRASH_OPTIMIZER, "", NULL, "fused=True", NULL},
	{"ranks that run a model forward train it", "[rank0]:   File \"/l/peft/tuners/tuners_utils.py\", line 193, in forward\n[rank0]:     return self.model.forward(x)\n"
						     "[rank0]:   File \"/l/transformers/models/llama/modeling_llama.py\", line 8, in forward\n[rank0]:     logits = self.lm_head(h)\n[rank0]: "
						     CUDA("3.90", "2.10", "28.40", "27.90", "0.20"), OOM_CRASH_FORWARD, "transformers", NULL, "use_liger_kernel", "prompts"},
	{"scores, and nobody says what ran", TRACE AT("net.py", "forward", "attn_weights = torch.matmul(q, k)") CUDA("3.90", "2.10", "28.40", "27.90", "0.20"), OOM_CRASH_FORWARD, "", NULL,
	 "attention without the full", NULL},
	{"InvokeAI's own configuration", TRACE AT("site-packages/invokeai/app/invocations/latents_to_image.py", "invoke", "i = vae.decode(l)") CUDA("3.90", "2.10", "28.40", "27.90", "0.20"),
	 OOM_CRASH_INFERENCE, "invokeai", NULL, "force_tiled_decode", NULL},
	{"a header of pytest's", "E   " CUDA("3.90", "2.10", "28.40", "27.90", "0.20") "______________ TestCast.test_checkpointing ______________\n", OOM_CRASH_TEST, "pytest", NULL, NULL, "micro-batch"},
	{"no batch at all fitted", "No executable batch size found, reached zero.\n" TRACE AT("/x/sd_dreambooth_extension/train_dreambooth.py", "inner_loop", "n = unet(x)")
	 AT("site-packages/torch/nn/modules/conv.py", "_conv_forward", "return F.conv2d(x)") CUDA("0.02", "0.01", "31.30", "30.60", "0.05"), OOM_CRASH_FORWARD, "kohya", NULL,
	 "--gradient_checkpointing", "--train_batch_size 1"},
	{"outputs of a segmentation are no vocabulary", TRACE AT("site-packages/nnunetv2/inference/predict.py", "predict_sliding_window", "predicted_logits = torch.zeros(n)")
	 CUDA("10.12", "7.91", "15.60", "15.11", "0.03"), OOM_CRASH_INFERENCE, "nnunet", NULL, "--disable_tta", "chunked cross-entropy"},
};

static int wrong(const char *why, const char *what, const char *wanted, const char *got)
{
	if (!strcmp(wanted, got))
		return 0;
	print_error("%s: %s \"%s\", not \"%s\"\n", why, what, got, wanted);
	return 1;
}

static int check(size_t i)
{
	struct oom_crash c;
	struct oom_crash_answer a;
	int bad = 0;

	if (!oom_crash_decode(want[i].text, strlen(want[i].text), &c))
		return wrong(want[i].why, "refused", want[i].text, "");
	oom_crash_answer(&c, &a);
	bad += wrong(want[i].why, "phase", oom_crash_phase_str(want[i].phase), oom_crash_phase_str(c.phase));
	bad += wrong(want[i].why, "program", want[i].program, c.program);
	if (want[i].said && !strstr(c.cause[0].evidence, want[i].said))
		bad += wrong(want[i].why, "ground", want[i].said, c.cause[0].evidence);
	if (want[i].first && !(a.n_fix && strstr(a.fix[0], want[i].first)))
		bad += wrong(want[i].why, "first", want[i].first, a.n_fix ? a.fix[0] : "");
	for (size_t k = 0; want[i].never && k < a.n_fix; k++)
		if (strstr(a.fix[k], want[i].never))
			bad += wrong(want[i].why, "offered", "", a.fix[k]);
	return bad;
}

static void test_frames(void **state)
{
	int bad = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++)
		bad += check(i);
	assert_int_equal(bad, 0);
}

/* A phase that is half a guess is called one, and what would settle it is said; from 50 % on it is not. */
static void test_guesses(void **state)
{
	static const char *const texts[] = {"faiss search: someone wrote about inference\nCUDA out of memory. Tried to allocate 2.00 GiB\n",
					    TRACE AT("/w/fit/loop.py", "main", "loss.backward()") CUDA("1.20", "0.50", "30.40", "29.90", "0.20")};

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		struct oom_crash c;
		struct oom_crash_answer a;

		assert_true(oom_crash_decode(texts[i], strlen(texts[i]), &c));
		oom_crash_answer(&c, &a);
		assert_int_equal(c.phase, i ? OOM_CRASH_BACKWARD : OOM_CRASH_INFERENCE);
		assert_int_equal(strstr(a.happened, "probably") != NULL, !i);
		assert_int_equal(a.settle != NULL, !i);
	}
}

static bool any_is(const struct oom_crash_answer *a, const char *fix, const char *evidence)
{
	for (size_t i = 0; fix && i < a->n_fix; i++)
		if (strstr(a->fix[i], fix))
			return true;
	for (size_t i = 0; evidence && i < a->n_evidence; i++)
		if (strstr(a->evidence[i], evidence))
			return true;
	return false;
}

/* What is said beside the first fix. */
static const struct {
	const char *why, *text, *fix, *evidence, *never;
} besides[] = {
	{"room beside others", "Epoch 3\n" TRACE AT("fit.py", "train", "loss = net(x)") AT("net.py", "forward", "x = self.mix(x)") CUDA("5.00", "0.50", "9.40", "9.00", "0.20"),
	 "to fit beside them: halve", NULL, NULL},
	{"a script without the decorator", TRACE AT("show.py", "infer", "p = net(x)") AT("net.py", "forward", "x = self.mix(x)") CUDA("3.00", "0.50", "30.40", "20.00", "0.20"),
	 "torch.inference_mode()", NULL, NULL},
	{"and with it", TRACE AT("site-packages/torch/utils/_contextlib.py", "decorate_context", "return func(a)") AT("show.py", "infer", "p = net(x)") AT("net.py", "forward",
																	  "x = self.mix(x)")
	 CUDA("3.00", "0.50", "30.40", "20.00", "0.20"), NULL, "no gradients", "torch.inference_mode()"},
	{"the line outside of installed packages", TRACE AT("/w/fit/losses/near.py", "nearest", "d = a.repeat(n) * b") AT("/v/lib/python3.10/site-packages/torch/x.py", "mul", "return m(a)")
	 CUDA("3.00", "0.50", "30.40", "20.00", "0.20"), NULL, "led to it: losses/near.py:7, in nearest: d = a.repeat(n) * b", NULL},
	{"behind what a logger put before it", "[2024-09-09 17:43:57] [INFO] Traceback (most recent call last):\n[2024-09-09 17:43:57] [INFO] File \"fit.py\", line 18, in train\n"
					       "[2024-09-09 17:43:57] [INFO] loss.backward()\n[2024-09-09 17:43:57] [INFO] " CUDA("3.00", "0.50", "30.40", "20.00", "0.20"),
	 NULL, "led to it: fit.py:18, in train: loss.backward()", NULL},
	{"IPython's frames", "OutOfMemoryError                          Traceback (most recent call last)\nFile ~/w/cells/grow.py:370, in Net.run(self, n)\n    368 for e in t:\n"
			     "--> 370     loss = self.step(data)\n\nFile ~/e/lib/python3.10/site-packages/torch/nn/modules/module.py:1194, in Module._call_impl(self)\n"
			     "-> 1194     return forward_call(*input)\n\n" CUDA("3.00", "0.50", "30.40", "20.00", "0.20"),
	 NULL, "led to it: cells/grow.py:370, in Net.run: loss = self.step(data)", NULL},
	{"a server's own files are nobody's script", TRACE AT("/v/lib/python3.10/site-packages/vllm/worker.py", "execute_model", "o = self.run(x)")
	 CUDA("3.00", "0.50", "30.40", "20.00", "0.20"), "gpu_memory_utilization", NULL, "led to it"},
	{"as many as the array's first number says", "numpy.core._exceptions.MemoryError: Unable to allocate 966. GiB for an array with shape (500000, 1, 3, 960, 720) and data type uint8\n",
	 NULL, "500000, is as a rule a count", NULL},
	{"results are kept where transcription ends in the host's memory", "python transcribe_speech.py dataset_manifest=a.json\nTranscribing:  64%|###   | 845/1320 [12:01<06:44,  1.17it/s]\n"
									    "Detected 1 oom-kill event(s) in StepId=7.0 cgroup.\n", "transcribe_generator()", NULL, NULL},
	{"weights that were told to be of 32 bits", "python -m vllm.entrypoints.openai.api_server --model a/B-7B --dtype=float --max-model-len 800\n" CUDA("0.50", "0.01", "21.40", "21.30", "0.02"),
	 "weights in 16 bits", NULL, NULL},
	{"a tensor's type is no such option", ">>> a = torch.zeros([900,900,900], dtype=torch.float32, device='cuda')\n" TRACE AT("<stdin>", "<module>", "")
	 CUDA("2.72", "0.50", "30.40", "30.00", "0.02"), NULL, NULL, "told to take"},
	{"layers of clouds of points", TRACE AT("reg.py", "train_epoch", "f = net(cloud)") AT("/v/site-packages/MinkowskiEngine/MinkowskiConvolution.py", "forward", "out = self.conv.apply(")
	 CUDA("2.00", "0.50", "30.40", "20.00", "0.20"), "coarser voxels", "asked for by points", NULL},
	{"an input that is moved is no weights", TRACE AT("feed.py", "set_input", "self.images = images.to(device)") CUDA("2.00", "0.50", "30.40", "20.00", "0.20"),
	 "smaller images", "asked for by an input", "quantised"},
	{"predict() joins what it gives", "Traceback (most recent call last):\n" AT("/v/keras/engine/training.py", "predict", "all_outputs = map_up_to(batch_outputs, concat, outputs)")
	 "ResourceExhaustedError: OOM when allocating tensor with shape[900,64,512,2] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc [Op:ConcatV2]\n",
	 "predict_on_batch", "outputs of many batches", NULL},
	{"fairseq generates in words of its own", TRACE AT("/v/site-packages/fairseq_cli/generate.py", "main", "h = task.inference_step(g, m, s)") AT("/v/site-packages/fairseq/g.py", "generate", "x = y")
	 CUDA("2.00", "0.50", "30.40", "20.00", "0.20"), "--beam", NULL, "quantised"},
	{"OneTrainer saves alone", "Traceback (most recent call last):\n" AT("C:\\OneTrainer\\modules\\modelSaver\\X.py", "__save_safetensors", "save_file(d, to)") "MemoryError\n",
	 "Output Data Type", NULL, "ZeRO"},
	{"the host's memory is the Mac's GPU's", "got prompt ComfyUI\nRuntimeError: MPS backend out of memory (MPS allocated: 9.57 GiB, other allocations: 17.35 GiB, max allowed: 27.20 GiB). Tried to allocate "
					       "300.00 MiB on private pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory allocations (may cause system failure).\n",
	 "PYTORCH_MPS_HIGH", NULL, "--lowvram"},
	{"many times an APU's share is too much for any", "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 150.00 GiB. GPU 0 has a total capacity of 54.84 GiB of which 33.76 GiB is free. Of the "
						      "allocated memory 19.69 GiB is allocated by PyTorch, and 971.84 MiB is reserved by PyTorch but unallocated.\n",
	 "make that one tensor smaller", NULL, NULL},
	{"a loop of one's own has none of the Trainer's options", "Cell In[4], line 3\n      1 for batch in train_dataloader:\n----> 3     out = model(**batch)\n\nFile "
	 "/e/lib/python3.10/site-packages/transformers/models/a/modeling_a.py:91, in A.forward(self, x)\n---> 91 h = self.mlp(x)\n\n" CUDA("2.00", "0.50", "30.40", "20.00", "0.20"),
	 "halve the micro-batch", NULL, "per_device_train"},
	{"more than its share is held: weights", "vllm serve a/B-32B --gpu-memory-utilization 0.5 --max-model-len 900\n" CUDA("2.00", "0.50", "30.40", "29.00", "0.20"),
	 "tensor_parallel_size", NULL, "0.5 ->"},
	{"every pixel against every other", TRACE AT("infer.py", "flow", "f = net(a, b)") AT("core/corr.py", "corr", "c = torch.matmul(p, q)") CUDA("2.00", "0.50", "30.40", "20.00", "0.20"),
	 "smaller images where it is pixels", "pixels", NULL},
	{"an engine's states are no array", "[x] [INFO] [utils.py:829:see_memory_usage] Before creating fp16 partitions\nTraceback (most recent call last):\n"
	 AT("/v/site-packages/deepspeed/runtime/zero/stage3.py", "_create_partitions", "b = defragment(p)")
	 "RuntimeError: [enforce fail at alloc_cpu.cpp:66] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 26976714752 bytes. Error code 12 (Cannot allocate memory)\n",
	 "offload", NULL, "array's shape"},
	{"outputs of a validation, stacked", TRACE AT("/w/tab/fit.py", "fit", "self._predict_epoch(n, l)") AT("/w/tab/fit.py", "_predict_epoch", "o = self.stack_batches(a, b)")
	 CUDA("2.00", "0.50", "30.40", "20.00", "0.20"), "host", "joined on the card", "micro-batch"},
	{"a sum of graphs may be what fills it", "Epoch 2\n" TRACE AT("fit.py", "<module>", "run_loss += crit(net(x), y)") CUDA("0.20", "0.05", "30.40", "29.10", "0.20"),
	 "loss.item()", "the line that led to it", NULL},
	{"a sum of numbers is not", "Epoch 2\n" TRACE AT("fit.py", "<module>", "run_loss += crit(net(x), y).item()") CUDA("0.20", "0.05", "30.40", "29.10", "0.20"),
	 NULL, NULL, "loss.item()"},
	{"rays of a picture go in chunks", TRACE AT("look.py", "evaluate_all", "c = paint(r)") AT("look/paint.py", "batchify_rays", "out = render_rays(rays[i:i + n])")
	 CUDA("2.00", "0.50", "30.40", "20.00", "0.20"), "fewer rays at once", "asked for by rays", NULL},
	{"no numbers while a model is moved: who else is there", "Traceback (most recent call last):\n" AT("show.py", "<module>", "net = net.to(device)")
	 "RuntimeError: CUDA error: out of memory\n", "nvidia-smi shows who holds the card", NULL, NULL},
	{"a child of map() that was killed", "Traceback (most recent call last):\n" AT("prep.py", "<module>", "d = d.map(cut, num_proc=16)")
	 "RuntimeError: One of the subprocesses has abruptly died during map operation.To debug the error, disable multiprocessing.\n", "lower num_proc", NULL, NULL},
	{"pictures of three colours are no count", "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 1.37 GiB for an array with shape (6000, 10200, 3) and data type float64\n",
	 NULL, NULL, "is as a rule a count"},
};

static void test_besides(void **state)
{
	int bad = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(besides) / sizeof(besides[0]); i++) {
		struct oom_crash c;
		struct oom_crash_answer a;

		assert_true(oom_crash_decode(besides[i].text, strlen(besides[i].text), &c));
		oom_crash_answer(&c, &a);
		if (((besides[i].fix || besides[i].evidence) && !any_is(&a, besides[i].fix, besides[i].evidence)) ||
		    (besides[i].never && any_is(&a, besides[i].never, besides[i].never))) {
			print_error("%s: it says first \"%s\", and \"%s\"\n", besides[i].why, a.n_fix ? a.fix[0] : "", a.n_evidence ? a.evidence[0] : "");
			bad++;
		}
	}
	assert_int_equal(bad, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_frames), cmocka_unit_test(test_guesses), cmocka_unit_test(test_besides),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

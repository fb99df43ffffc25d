/* Which program ran out: by the packages its frames lie in, the names its loggers print and the
 * settings its messages speak of.
 *
 * The runtime whose allocator refused (torch, jax, ggml) is the message's own; the program is what
 * somebody started and can configure.  A traceback of the Trainer with DeepSpeed and torch below it
 * is the Trainer's: rows stand in the order in which users meet programs, the outermost first. */
#include <ctype.h>
#include <string.h>

#include "tables.h"

/* "@name": a package, as a segment of a path or the root of a dotted module; others: the words
 * themselves. */
static const struct oom_program programs[] = {
	{"pytest", "a test run", OOM_ACTIVITY_TESTS, "torch",
	 {"@_pytest", "short test summary info", "::test_", "pytest ", "____ Test", "____ test_", "@unittest", "PYTORCH_TEST_WITH"}, NULL, {NULL}},
	{"framepack", "FramePack", OOM_ACTIVITY_INFERS, "framepack", {"@FramePack", "@diffusers_helper"}, NULL, {NULL}},
	{"comfyui", "ComfyUI", OOM_ACTIVITY_INFERS, "comfyui",
	 {"ComfyUI", "comfyui", "comfy-env", "@comfy", "@comfy_extras", "got prompt", "Error occurred when executing ", "comfy.ldm", "KSampler", "ran out of memory on your GPU"}, "diffusers-train", {NULL}},
	{"forge", "Stable Diffusion WebUI Forge", OOM_ACTIVITY_INFERS, "forge", {"modules_forge", "webui-forge", "Forge WebUI", "WebUI Forge", "forge_inference_memory", "distilled_cfg_scale", "@backend/memory_management",
	    "To load target model KModel"}, "diffusers-train", {NULL}},
	{"webui", "the Stable Diffusion web UI", OOM_ACTIVITY_INFERS, "webui",
	 {"stable-diffusion-webui", "sd.webui", "AUTOMATIC1111", "A1111", "set COMMANDLINE_ARGS", "ires.fix", "ires fix", "@ldm_patched", "sd_hijack", "modules/processing.py", "sd_samplers",
	  "memmon.py", "[Unload] Trying to free", "[Memory Management]", "HiRes", "ires fix", "highres fix"}, "diffusers-train", {NULL}},
	{"fooocus", "Fooocus", OOM_ACTIVITY_INFERS, "fooocus", {"Fooocus"}, NULL, {"webui"}},
	{"triton-server", "Triton Inference Server", OOM_ACTIVITY_SERVES, "triton-server", {"backend_model_instance.cc", "TRITONBACKEND", "tritonserver", "triton_python_backend"}, NULL, {NULL}},
	{"invokeai", "InvokeAI", OOM_ACTIVITY_INFERS, "invokeai", {"@invokeai", "InvokeAI"}, "diffusers-train", {NULL}},
	/* before Wan's script, whose names of tasks it has */
	{"musubi", "musubi-tuner", OOM_ACTIVITY_TRAINS, "musubi", {"musubi", "wan_train_network.py", "hv_train_network.py"}, NULL, {NULL}},
	/* the makers' own scripts, by the files that only infer; others train with their modules */
	{"wan2gp", "Wan2GP", OOM_ACTIVITY_INFERS, "wan2gp", {"Wan2GP", "WanGP", "wgp.py", "@mmgp"}, NULL, {NULL}},
	{"wan", "Wan's generate.py", OOM_ACTIVITY_INFERS, "wan",
	 {"wan/text2video.py", "wan/image2video.py", "wan/textimage2video.py", "wan/first_last_frame2video.py", "wan/speech2video.py", "Wan2.1/generate.py", "Wan2.2/generate.py", "--task t2v-", "--task i2v-", "--task ti2v-", "--task s2v-",
	  "--task animate-"},
	 NULL, {NULL}},
	{"diffsynth", "DiffSynth", OOM_ACTIVITY_EITHER, "diffsynth", {"@diffsynth", "DiffSynth", "enable_vram_management("}, "diffusers-train", {NULL}},
	{"hunyuan-video", "HunyuanVideo's script", OOM_ACTIVITY_INFERS, "hunyuan-video",
	 {"hyvideo/inference.py", "hyvideo/diffusion/pipelines", "HunyuanVideo/sample_video.py", "HunyuanVideo-I2V/sample_image2video.py",
	  "--embedded-cfg-scale", "--infer-steps"}, NULL, {NULL}},
	{"tf-serving", "TensorFlow Serving", OOM_ACTIVITY_SERVES, "tf-serving", {"tensorflow/serving", "tensorflow_model_server", "Tensorflow Serving", "TensorFlow Serving", "tensorflow_serving", "tensorflow-serving"}, NULL, {NULL}},
	{"text-generation-webui", "text-generation-webui", OOM_ACTIVITY_INFERS, "textgen",
	 {"text-generation-webui", "Output generated in"}, "trainer", {NULL}},
	/* they print what llama.cpp prints, and beside it who they are: frames of Go, banners, options of their own */
	{"ollama", "Ollama", OOM_ACTIVITY_SERVES, "ollama", {"ollama", "llama runner process"}, NULL, {"llama.cpp"}},
	{"koboldcpp", "KoboldCpp", OOM_ACTIVITY_INFERS, "koboldcpp", {"koboldcpp", "KoboldCpp", "Embedded Kobold Lite"}, NULL, {"llama.cpp"}},
	{"lm-studio", "LM Studio", OOM_ACTIVITY_INFERS, "lm-studio", {"LM Studio", "LM-Studio", "LMStudio", "lm-studio", "lmstudio", ".lmstudio"}, NULL, {"llama.cpp"}},
	{"verl", "verl", OOM_ACTIVITY_TRAINS, "verl",
	 {"@verl", "WorkerDict", "actor_rollout", "actor/entropy_loss", "actor/ppo_kl", "EasyR1"}, NULL, {NULL}},
	{"openrlhf", "OpenRLHF", OOM_ACTIVITY_TRAINS, "openrlhf", {"@openrlhf", "OpenRLHF", "openrlhf.cli", "ActorModelRayActor"}, NULL, {"deepspeed", "vllm"}},
	{"slime", "slime", OOM_ACTIVITY_TRAINS, "slime", {"@slime", "MegatronTrainRayActor"}, NULL, {"megatron", "sglang"}},
	/* its trainers have TRL's names */
	{"colossalai", "Colossal-AI", OOM_ACTIVITY_TRAINS, "colossalai", {"@colossalai", "@ColossalAI", "@coati", "booster.backward(", "colossalai run"}, NULL, {NULL}},
	{"trl", "TRL", OOM_ACTIVITY_TRAINS, "trl",
	 {"@trl", "grpo_trainer", "dpo_trainer", "sft_trainer", "UnslothGRPOTrainer", "DPOTrainer", "GRPOTrainer", "GRPOtrainer", "SFTTrainer"}, NULL, {"trainer",
	     "accelerate"}},
	{"unsloth", "Unsloth", OOM_ACTIVITY_TRAINS, "unsloth", {"@unsloth", "@unsloth_zoo", "Unsloth", "import unsloth", "from unsloth", "FastLanguageModel", "unsloth_compiled_"}, NULL, {"trl", "trainer", "accelerate"}},
	/* by its frames, its commands, or keys that only its files have */
	{"axolotl", "Axolotl", OOM_ACTIVITY_TRAINS, "axolotl", {"@axolotl", "axolotl.cli", "axolotl train", "axolotl preprocess", "axolotl merge-lora", "axolotl fetch", "\nsequence_len:", "\nval_set_size:",
	    "\neval_sample_packing:", "\ndo_causal_lm_eval:", "\neval_causal_lm_metrics:"}, NULL, {"trl", "trainer", "accelerate", "deepspeed", "transformers", "fsdp", "generate"}},
	{"llamafactory", "LLaMA-Factory", OOM_ACTIVITY_TRAINS, "llamafactory",
	 {"@llamafactory", "@llmtuner", "llamafactory-cli", "`llamafactory`", "ds_z3_config", "ds_z2_config", "ds_z3_offload", "ds_z2_offload", "LLaMA-Factory", "llama-factory", "LlamaFactory", "finetuning_type", "cutoff_len:"}, NULL, {"trl", "trainer",
	     "accelerate", "deepspeed", "transformers", "fsdp", "generate", "unsloth"}},
	{"swift", "ms-swift", OOM_ACTIVITY_TRAINS, "swift", {"@swift/llm", "@swift/pipelines", "@swift/cli", "swift/trainers", "swift sft", "swift rlhf"}, NULL, {"trl", "trainer", "accelerate"}},
	{"simpletuner", "SimpleTuner", OOM_ACTIVITY_TRAINS, "simpletuner", {"SimpleTuner", "@simpletuner", "simpletuner train", "multidatabackend"}, NULL, {NULL}},
	{"ai-toolkit", "ai-toolkit", OOM_ACTIVITY_TRAINS, "ai-toolkit", {"ai-toolkit", "ai_toolkit", "extensions_built_in/sd_trainer", "extensions_built_in\\sd_trainer", "jobs/process/BaseSDTrainProcess",
	    "jobs\\process\\BaseSDTrainProcess", "accuracy_recovery_adapters", "sd_trainer"}, NULL, {"kohya"}},
	{"diffusion-pipe", "diffusion-pipe", OOM_ACTIVITY_TRAINS, "diffusion-pipe", {"diffusion-pipe", "diffusion_pipe", "activation_checkpointing = '", "frame_buckets"}, NULL, {"deepspeed"}},
	{"kohya", "the diffusion training script", OOM_ACTIVITY_TRAINS, "diffusers-train",
	 {"sd-scripts", "kohya", "Kohya", "train_network.py", "sdxl_train", "networks.lora", "sd_dreambooth_extension"}, NULL, {NULL}},
	{"diffusers-scripts", "the training script of Diffusers", OOM_ACTIVITY_TRAINS, "diffusers-scripts",
	 {"train_dreambooth", "train_text_to_image", "train_controlnet", "train_unconditional", "train_instruct_pix2pix", "train_t2i_adapter", "textual_inversion.py",
	  "num_validation_images", "validation_prompt", "validation_epochs"}, NULL, {NULL}},
	{"dreambooth", "the diffusion training script", OOM_ACTIVITY_TRAINS, "diffusers-train", {"dreambooth"}, NULL, {NULL}},
	{"captum", "the attribution", OOM_ACTIVITY_INFERS, "captum", {"@captum", "@inseq"}, NULL, {NULL}},
	{"onetrainer", "OneTrainer", OOM_ACTIVITY_TRAINS, "onetrainer", {"OneTrainer", "modules/trainer/GenericTrainer.py", "modules\\trainer\\GenericTrainer.py"}, NULL, {"kohya"}},
	{"lm-eval", "the evaluation harness", OOM_ACTIVITY_INFERS, "transformers",
	 {"@lm_eval", "lm_eval ", "lm-eval", "@lighteval", "@opencompass", "@vlmeval", "VLMEvalKit", "@lmms_eval"}, NULL, {NULL}},
	{"vllm-omni", "vLLM-Omni", OOM_ACTIVITY_INFERS, "vllm-omni", {"vllm_omni/diffusion", "diffusion_worker.py", "enable-layerwise-offload"}, NULL, {NULL}},
	{"sglang-diffusion", "SGLang's diffusion server", OOM_ACTIVITY_INFERS, "sglang-diffusion",
	 {"@sglang/multimodal_gen", "multimodal_gen/runtime", "dit-layerwise-offload", "dit_layerwise_offload", "dit-cpu-offload", "dit_cpu_offload"}, NULL, {NULL}},
	{"vllm", "vLLM", OOM_ACTIVITY_SERVES, "vllm",
	 {"@vllm", "@vllm_ascend", "@vllm_omni", "EngineCore", "v1/engine/core.py", "VllmWorker", "WorkerWrapper", "worker_base.py", "gpu_model_runner.py",
	  "`gpu_memory_utilization`", "max_num_seqs", "vllm serve", "--max-model-len", "from vllm import", "LLM(model=", "# vllm"}, NULL, {NULL}},
	{"sglang", "SGLang", OOM_ACTIVITY_SERVES, "sglang", {"@sglang", "sglang", "mem-fraction-static", "mem_fraction_static", "Scheduler hit an exception", "avail mem="}, NULL, {"vllm"}},
	{"tgi", "text-generation-inference", OOM_ACTIVITY_SERVES, "tgi",
	 {"text_generation_server", "text_generation_client", "text_generation_launcher",
	  "text_generation_router", "text-generation-launcher", "text-generation-inference", "max-batch-prefill-tokens", "@text_generation",
	  "text_generation.errors"}, NULL, {NULL}},
	{"tensorrt-llm", "TensorRT-LLM", OOM_ACTIVITY_SERVES, "trtllm",
	 {"@tensorrt_llm", "[TensorRT-LLM]", "[TRT-LLM]", "TensorRT-LLM", "trtllm-serve", "kv_cache_free_gpu_memory_fraction", "free_gpu_memory_fraction"}, NULL, {NULL}},
	{"lmdeploy-lite", "LMDeploy's quantiser", OOM_ACTIVITY_INFERS, "lmdeploy-lite", {"@lmdeploy/lite", "lmdeploy lite"}, NULL, {NULL}},
	{"lmdeploy", "LMDeploy", OOM_ACTIVITY_SERVES, "lmdeploy", {"@lmdeploy", "[TM][", "turbomind", "lmdeploy serve", "LMDeploy"}, NULL, {NULL}},
	{"exllama", "ExLlama", OOM_ACTIVITY_INFERS, "exllama", {"@exllamav2", "@exllamav3", "@tabbyAPI", "nsufficient VRAM for model", "nsufficient VRAM in split for model"}, NULL, {NULL}},
	{"llama-cpp-python", "llama-cpp-python", OOM_ACTIVITY_INFERS, "llama-cpp-python", {"@llama_cpp", "LlamaCpp(", "= Llama(", "Llama.from_pretrained("},
	    NULL, {"llama.cpp"}},
	{"llama.cpp", "llama.cpp", OOM_ACTIVITY_INFERS, "llama.cpp",
	 {"llama_model_load", "llama_init_from_model", "llama_new_context", "llama_kv_cache", "llama-server",
	  "llama-cli", "llama_context", "llama_cpp", "load_tensors:", "common_init_from_params",
	  "llama_decode", "ggml_metal", "slot update_slots"}, NULL, {NULL}},
	{"whisper.cpp", "whisper.cpp", OOM_ACTIVITY_INFERS, "ggml", {"whisper_init", "whisper_model_load", "whisper-cli"}, NULL, {NULL}},
	{"sd.cpp", "stable-diffusion.cpp", OOM_ACTIVITY_INFERS, "ggml", {"stable-diffusion.cpp", "ggml_extend.hpp"}, NULL, {NULL}},
	{"mlx-lm", "MLX", OOM_ACTIVITY_EITHER, "mlx", {"@mlx_lm", "@mlx_vlm", "mlx-vlm", "mlx-lm", "mlx_lm", "mlx_vlm"}, NULL, {NULL}},
	{"nemo-asr", "NeMo", OOM_ACTIVITY_EITHER, "nemo-asr", {"@nemo/collections/asr", "transcribe_speech", "nemo_asr", "speech_to_text_"}, NULL, {"lightning"}},
	{"nemo", "NeMo", OOM_ACTIVITY_TRAINS, "megatron", {"@nemo", "@nemo_rl", "MegatronPolicyWorker"}, NULL, {NULL}},
	{"megatron", "Megatron-LM", OOM_ACTIVITY_TRAINS, "megatron", {"@megatron", "Megatron", "pretrain_gpt", "megatron sft", "megatron pt", "megatron rlhf"}, NULL, {NULL}},
	{"ultralytics", "Ultralytics", OOM_ACTIVITY_EITHER, "ultralytics", {"@ultralytics", "yolov5", "@yolov", "Ultralytics", "yolo train", "yolo detect",
	    "yolo task", "YOLOv8", "yolov8", "yolo11", "YOLO11", "YOLOV11", "AutoBatch: "}, NULL, {NULL}},
	{"detectron2", "detectron2", OOM_ACTIVITY_EITHER, "detectron2", {"@detectron2", "d2.engine"}, NULL, {NULL}},
	{"mmengine", "the OpenMMLab program", OOM_ACTIVITY_EITHER, "mmengine", {"@mmengine", " - mmengine - ", " - mmdet - ", "@mmdet", "@mmcv", "@mmseg", "mmseg", "@mmrotate", "@mmdet3d", "@mmpose",
	    "@mmaction", "@mmocr"}, NULL, {NULL}},
	{"openpcdet", "OpenPCDet", OOM_ACTIVITY_EITHER, "openpcdet", {"@pcdet", "OpenPCDet"}, NULL, {NULL}},
	{"isaac", "Isaac's simulation", OOM_ACTIVITY_EITHER, "isaac", {"@isaacgym", "@isaaclab", "@omni/isaac", "GPU PhysX", "PxgCudaDeviceMemoryAllocator", "@legged_gym"}, NULL, {NULL}},
	{"stable-baselines3", "Stable-Baselines3", OOM_ACTIVITY_EITHER, "sb3", {"@stable_baselines3", "@sb3_contrib", "@stable_baselines"}, NULL, {NULL}},
	{"pyg", "PyTorch Geometric", OOM_ACTIVITY_EITHER, "pyg", {"@torch_geometric", "@torch_scatter"}, NULL, {"lightning"}},
	{"dgl", "DGL", OOM_ACTIVITY_EITHER, "dgl", {"@dgl"}, NULL, {"lightning"}},
	{"espnet", "ESPnet", OOM_ACTIVITY_EITHER, "espnet", {"@espnet2", "@espnet", "espnet2/bin", "asr_train.py"}, NULL, {NULL}},
	{"coqui-tts", "Coqui TTS", OOM_ACTIVITY_EITHER, "coqui-tts", {"@TTS/tts", "@TTS/bin", "@TTS/utils", "@TTS/vocoder"}, NULL, {NULL}},
	{"fastai", "fastai", OOM_ACTIVITY_EITHER, "fastai", {"@fastai"}, NULL, {NULL}},
	{"upscaler", "the upscaler", OOM_ACTIVITY_EITHER, "upscaler", {"@realesrgan", "@basicsr", "inference_realesrgan", "Real-ESRGAN"}, NULL, {NULL}},
	{"segment-anything", "Segment Anything", OOM_ACTIVITY_EITHER, "segment-anything", {"@segment_anything", "SamAutomaticMaskGenerator"}, NULL, {NULL}},
	{"document-ocr", "the reader of documents", OOM_ACTIVITY_INFERS, "document-ocr", {"@surya", "@marker", "marker_single"}, NULL, {NULL}},
	{"folding-torch", "the folding program", OOM_ACTIVITY_EITHER, "folding-torch", {"@openfold", "@boltz", "@chai_lab", "@protenix", "esmfold", "EsmFold"}, NULL, {"lightning"}},
	{"nerfstudio", "nerfstudio", OOM_ACTIVITY_TRAINS, "nerfstudio", {"@nerfstudio", "splatfacto", "nerfacto", "ns-train"}, NULL, {NULL}},
	{"gaussian-splatting", "Gaussian splatting", OOM_ACTIVITY_TRAINS, "splatting",
	 {"gaussian-splatting", "Gaussian-Splatting", "gaussian_splatting", "@gaussian_renderer", "diff_gaussian_rasterization", "rasterize_gaussians", "gaussian_model.py", "@gsplat"}, NULL, {NULL}},
	{"monai", "MONAI", OOM_ACTIVITY_EITHER, "monai", {"@monai", "sliding_window_inference", "MONAI", "monailabel", "MONAILabel", "SwinUNETR"}, NULL, {NULL}},
	{"nnunet", "nnU-Net", OOM_ACTIVITY_EITHER, "nnunet", {"@nnunetv2", "@nnunet", "@batchgenerators", "nnUNet", "Prediction on device was unsuccessful"}, NULL, {NULL}},
	{"spacy", "spaCy", OOM_ACTIVITY_EITHER, "spacy", {"@spacy", "@spacy_transformers"}, NULL, {NULL}},
	{"fairseq", "fairseq", OOM_ACTIVITY_TRAINS, "fairseq", {"@fairseq", "fairseq.trainer", "fairseq_cli", "fairseq-train", "fairseq-generate", "fairseq-interactive", "fairseq-hydra-train", "attempting to recover from OOM in forward/backward pass", "WARNING: ran out of memory with exception"}, NULL, {NULL}},
	{"litgpt", "LitGPT", OOM_ACTIVITY_EITHER, "litgpt", {"@litgpt", "@lit_gpt", "@lit-gpt", "@lit_llama", "@lit-llama", "litgpt finetune", "litgpt pretrain"}, NULL, {"lightning"}},
	{"llama-recipes", "llama-recipes", OOM_ACTIVITY_EITHER, "llama-recipes", {"@llama_recipes", "@llama_cookbook", "llama_finetuning.py", "batch_size_training", "llama-recipes"}, NULL, {"fsdp", "transformers"}},
	{"lightning", "Lightning", OOM_ACTIVITY_EITHER, "lightning",
	 {"@pytorch_lightning", "@lightning", "@lightning_fabric", "LightningModule"}, NULL, {NULL}},
	/* its launcher and its memory reports, where no frame says whose training it is */
	{"deepspeed", "DeepSpeed", OOM_ACTIVITY_TRAINS, "deepspeed", {"sigkill_handler", "see_memory_usage"}, NULL, {NULL}},
	{"trainer", "the Trainer of transformers", OOM_ACTIVITY_TRAINS, "trainer",
	 {"transformers/trainer.py", "transformers\\trainer.py", "transformers/trainer_", "transformers.trainer", "per_device_train_batch_size",
	  "_inner_training_loop", "llava/train/", "run_clm.py", "run_mlm.py", "***** Running training"}, NULL, {"accelerate"}},
	{"sentence-transformers", "sentence-transformers", OOM_ACTIVITY_EITHER, "sentence-transformers", {"@sentence_transformers", "sentence-transformers", "SentenceTransformer("}, NULL, {"trainer"}},
	{"autotrain", "AutoTrain", OOM_ACTIVITY_TRAINS, "autotrain", {"@autotrain", "autotrain llm", "autotrain seq2seq", "autotrain-advanced", "AutoTrain", "Autotrain"}, NULL, {"trl", "trainer", "sentence-transformers", "accelerate"}},
	{"torchtune", "torchtune", OOM_ACTIVITY_TRAINS, "torchtune", {"@torchtune", "tune run", "torchtune"}, NULL, {"fsdp"}},
	{"whisper", "Whisper", OOM_ACTIVITY_INFERS, "whisper", {"@whisper", "@faster_whisper", "@whisperx", "whisperjav", "insanely-fast-whisper", "whisper-ctranslate2", "Faster-Whisper"}, NULL, {NULL}},
	{"quantiser", "the quantiser", OOM_ACTIVITY_INFERS, "quantisers",
	 {"@awq", "@auto_gptq", "@gptqmodel", "@llmcompressor", "@optimum/gptq", "@auto_round", "@hqq", "llmcompressor", "llm-compressor", "AWQModifier", "GPTQModifier", "autoawq", "AutoAWQForCausalLM.from_pretrained", "AutoAWQ", "BaseQuantizeConfig", "GPTQConfig(bits", ".save_quantized(", "calibration activations", "calibration dataset"}, NULL, {NULL}},
	{"diffusers", "Diffusers", OOM_ACTIVITY_EITHER, "diffusers", {"@diffusers/pipelines", "diffusers\\pipelines", "@diffusers", "from diffusers", "FluxPipeline", "StableDiffusionPipeline", "DiffusionPipeline", "Flux2Pipeline", "WanPipeline", "num_inference_steps", "enable_model_cpu_offload", "enable_sequential_cpu_offload"}, "diffusers-train", {NULL}},
	{"deepspeed", "DeepSpeed", OOM_ACTIVITY_EITHER, "deepspeed", {"@deepspeed", "see_memory_usage", "[deepspeed]", "ds_config", "ZeRO stage", "ZeRO-2",
	    "ZeRO-3", "ZeRO optimizer", "ZeRO3"}, NULL, {NULL}},
	{"megatron-deepspeed", "Megatron-DeepSpeed", OOM_ACTIVITY_TRAINS, "megatron-deepspeed", {"@deepspeed"}, NULL, {"megatron"}},
	{"generate", "generation with transformers", OOM_ACTIVITY_LIBRARY, "transformers",
	 {"transformers/generation", "transformers\\generation", "transformers/pipelines", "transformers\\pipelines", "generation/utils.py"}, "trainer", {NULL}},
	{"transformers", "transformers", OOM_ACTIVITY_LIBRARY, "transformers",
	 {"transformers/modeling_utils.py", "transformers\\modeling_utils.py", "Loading checkpoint shards", "from_pretrained(", "@transformers"}, "trainer", {NULL}},
	{"accelerate", "Accelerate", OOM_ACTIVITY_EITHER, "trainer", {"@accelerate", "accelerate launch"}, NULL, {NULL}},
	{"fsdp", "FSDP", OOM_ACTIVITY_EITHER, "fsdp", {"distributed/fsdp", "_composable/fsdp", "distributed/checkpoint/state_dict.py", "distributed/_state_dict_utils.py", "FullyShardedDataParallel", "fully_shard"}, NULL, {NULL}},
	/* scripts of their own around models that draw */
	{"image-model", "the image model's program", OOM_ACTIVITY_EITHER, "image-model",
	 {"flux", "FLUX", "Flux", "sdxl", "SDXL", "stable-diffusion", "stable_diffusion", "StableDiffusion", "HunyuanVideo", "hyvideo", "hunyuan", "CogVideo",
	     "cogvideo", "Wan2."},
	 "diffusers-train", {NULL}},
	{"tf-detection", "the object detection API", OOM_ACTIVITY_EITHER, "tf-detection",
	 {"@object_detection", "object_detection_tutorial", "object_detection/model_main", "model_main_tf2.py", "FirstStageFeatureExtractor", "SecondStageFeatureExtractor", "pipeline_config_path"},
	 NULL, {NULL}},
	{"mrcnn", "Mask R-CNN", OOM_ACTIVITY_EITHER, "mrcnn", {"@mrcnn", "mrcnn.model"}, NULL, {NULL}},
	{"keras", "Keras", OOM_ACTIVITY_EITHER, "tensorflow", {"@keras", "@keras_core"}, NULL, {NULL}},
	{"server", "the server", OOM_ACTIVITY_SERVES, "transformers", {" serve --", "api_server", "/v1/chat/completions", "@uvicorn", "@fastapi"}, NULL, {NULL}},
	{"colabfold", "the folding program", OOM_ACTIVITY_INFERS, "folding", {"@colabfold", "Running colabfold", "colabfold", "ColabFold", "localcolabfold", "Not Enough GPU memory?", "@alphafold", "@alphafold3", "AlphaFold", "run_alphafold"}, NULL, {NULL}},
};

/* A library on a runtime that is not PyTorch's speaks that runtime's words; a program with options of its own keeps
 * them. */
const char *oom_program_dialect(const struct oom_crash *c, bool trains)
{
	const struct oom_program *const p = oom_program_of(c);

	if (*p->name && oom_does_either(p->activity) && !oom_runtime_is(c, OOM_RUNTIME_TORCH | OOM_RUNTIME_HOST) &&
	    !oom_dialect_rests_on(p->dialect, oom_runtime_named(c->framework)->as.dialect))
		return oom_runtime_named(c->framework)->as.dialect;
	/* recordings and pictures have no prompts; what loads a model is the library's, whoever calls it */
	if (!trains && *p->name && oom_own_script(c) && c->phase != OOM_CRASH_LOAD)
		return oom_runtime_named(c->framework)->as.dialect;
	/* a loop of one's own around a model of the library has no options of its Trainer's */
	if (trains && p->activity == OOM_ACTIVITY_LIBRARY && (*c->own_line || c->notebook) && !strstr(c->own_line, "trainer."))
		return oom_runtime_named(c->framework)->as.dialect;
	return trains && p->trains_with ? p->trains_with : p->dialect;
}

static bool name_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '_' || c == '-';
}

static bool slash(char c)
{
	return c == '/' || c == '\\';
}

/* A row of nvidia-smi's or of its queries: it ends in a process's size in MiB. Whose process it is, is not
 * whose message this is. */
static bool of_process(const char *begin, const char *p, const char *end)
{
	const char *const line = oom_line_begin(begin, p), *q = oom_line_end(p, end);

	/* "buffer size = 8000.00 MiB" is a program's own line */
	if (oom_text_find(line, q, " = "))
		return false;
	while (q > line && strchr("| \t\r", q[-1]))
		q--;
	if (q - line < 4 || memcmp(q - 3, "MiB", 3))
		return false;
	for (q -= 3; q > line && q[-1] == ' ';)
		q--;
	return q > line && isdigit((unsigned char)q[-1]);
}

/* "base_model: unsloth/gemma-3-270m" names who made the weights, not who runs: owner and name of the Hub, behind a
 * word for a model. Python's own files end in ".py" or lie deeper. */
static bool of_model(const char *begin, const char *p, const char *slash_at, const char *end)
{
	const char *const line = oom_line_begin(begin, p);
	const char *q = slash_at + 1;

	if ((p > begin && slash(p[-1])) || !(oom_text_find(line, p, "model") || oom_text_find(line, p, "pretrained")))
		return false;
	while (q < end && (name_char(*q) || *q == '.'))
		q++;
	return q > slash_at + 1 && !(q < end && slash(*q)) && memcmp(q - 3, ".py", 3) != 0;
}

/* name as a folder of a path or the root of a dotted module: "/vllm/", "vllm.engine" */
static bool package_in(const char *begin, const char *end, const char *name)
{
	const size_t n = strlen(name);

	for (const char *p = begin; (p = oom_text_find(p, end, name)); p++) {
		const char after = p + n < end ? p[n] : 0;

		if ((p > begin && (name_char(p[-1]) || p[-1] == '.')) || of_process(begin, p, end))
			continue;
		if (slash(after) && of_model(begin, p, p + n, end))
			continue;
		if (slash(after) || (after == '.' && p + n + 1 < end && name_char(p[n + 1]) &&
				     !(p + n + 3 < end && !memcmp(p + n, ".py", 3)) &&
				     !(p > begin && slash(p[-1]))) ||
		    (strchr(name, '/') && (after == '.' || after == 0)))
			return true;
	}
	return false;
}

/* "the same with LLaMA-Factory is fine": named because it is not what failed. */
static bool is_compared(const char *begin, const char *p, const char *end)
{
	static const char *const words[] = {" is fine", " are fine", " acted fine", " works fine", " worked fine", " work fine", " runs fine", " ran fine", " was fine", " were fine"};
	/* "the same works when loading with LM Studio" */
	static const char *const before[] = {"works when ", "works with ", "works in ", "works on ", "works fine ", "work fine ", "worked fine ", "runs fine ", "worked with ", "ever had this issue with ", "n't have this issue with ", "ame works "};
	const char *const stop = oom_sentence_end(p, end - p > 60 ? p + 60 : end, 1), *const from = oom_sentence_begin(p - begin > 60 ? p - 60 : begin, p);

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (oom_text_find(p, stop, words[i]))
			return true;
	for (size_t i = 0; i < sizeof(before) / sizeof(before[0]); i++)
		if (oom_text_find(from, p, before[i]))
			return true;
	return false;
}

/* "~/.lmstudio/models/own/m.gguf": whose folder a file lies in is not who reads it. */
static bool in_path_of_weights(const char *p, const char *end)
{
	const char *q = p;

	while (q < end && !strchr(" \t\r\n\"'`,;)", *q))
		q++;
	return q - p > 5 && !memcmp(q - 5, ".gguf", 5);
}

static bool word_in(const char *begin, const char *end, const char *word)
{
	for (const char *p = begin; (p = oom_text_find(p, end, word)); p++)
		if (!of_process(begin, p, end) && !is_compared(begin, p, end) && !in_path_of_weights(p, end))
			return true;
	return false;
}

static bool shows(const struct oom_program *p, const char *begin, const char *end)
{
	for (size_t k = 0; k < OOM_PROGRAM_MARKS && p->marks[k]; k++)
		if (*p->marks[k] == '@' ? package_in(begin, end, p->marks[k] + 1) :
					  word_in(begin, end, p->marks[k]))
			return true;
	return false;
}

/* Who trains does not run on a runtime that serves: where it is named there, it is in the name of a model. Trainers of
 * PyTorch do not run on JAX or TensorFlow: scripts there take over the names of their options. */
static const struct oom_program *find(const struct oom_crash *c, const char *begin, const char *end)
{
	const bool other = oom_runtime_is(c, OOM_RUNTIME_LAYERED | OOM_RUNTIME_GRAPH) ||
			   (oom_runtime_is(c, OOM_RUNTIME_EXECUTABLE) && !oom_runtime_is(c, OOM_RUNTIME_EITHER_XLA));

	for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++)
		if (!(other && programs[i].activity == OOM_ACTIVITY_TRAINS) && shows(&programs[i], begin, end))
			return &programs[i];
	return NULL;
}

static bool is_built_on(const struct oom_program *upper, const struct oom_program *lower)
{
	for (size_t i = 0; i < OOM_PROGRAM_BASES && upper->built_on[i]; i++)
		if (!strcmp(upper->built_on[i], lower->name))
			return true;
	return false;
}

static const struct oom_program *upper_of(const struct oom_program *p, const char *begin, const char *end)
{
	for (size_t k = 0; p && k < sizeof(programs) / sizeof(programs[0]); k++)
		if (is_built_on(&programs[k], p) && shows(&programs[k], begin, end))
			return &programs[k];
	return p;
}

const struct oom_program *oom_program_of(const struct oom_crash *c)
{
	for (size_t i = 0; *c->program && i < sizeof(programs) / sizeof(programs[0]); i++)
		if (!strcmp(programs[i].name, c->program))
			return &programs[i];
	return &oom_runtime_named(c->framework)->as;
}

const char *oom_crash_program(size_t i)
{
	return i < sizeof(programs) / sizeof(programs[0]) ? programs[i].name : NULL;
}

/* Its name, its title, or the package that its frames lie in. */
static bool is_called(const struct oom_program *p, const char *framework)
{
	if (!strcmp(p->name, framework) || !strcmp(p->title, framework))
		return true;
	for (size_t k = 0; k < OOM_PROGRAM_MARKS && p->marks[k]; k++) {
		size_t i = 0;

		while (*p->marks[k] == '@' && framework[i] && p->marks[k][i + 1] == (framework[i] == '-' ? '_' : framework[i]))
			i++;
		if (i && !framework[i] && !p->marks[k][i + 1])
			return true;
	}
	return false;
}

/* A trainer that others build on may have been started by one of them. */
static bool is_base(const struct oom_program *p)
{
	for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++)
		if (is_built_on(&programs[i], p))
			return true;
	return false;
}

/* A trainer of its own whose frames the text shows has options of its own, whoever else has some of the same names. */
const char *oom_program_reading(const struct oom_crash *c, const char *framework)
{
	const struct oom_program *const now = oom_program_of(c);

	for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++)
		if (is_called(&programs[i], framework))
			return is_built_on(now, &programs[i]) || now->activity == OOM_ACTIVITY_SERVES || (c->traceback && *now->name && now->activity == OOM_ACTIVITY_TRAINS && !is_base(now)) ? "" : programs[i].name;
	return "";
}

/* The traceback of the message speaks before the log it stands in: a server's log may name every
 * package that it imported. */
void oom_decode_program(struct oom_crash *c, const char *begin, const char *at, const char *end)
{
	const char *head = NULL;
	const struct oom_program *p = NULL;

	for (const char *q = begin; (q = oom_text_find(q, at, "Traceback (most recent call last)"));
	     q++)
		head = q;
	if (head)
		p = find(c, head, oom_line_end(at, end));
	if (!p)
		p = find(c, oom_line_begin(begin, at), oom_line_end(at, end));
	if (!p)
		p = find(c, at - begin > 6000 ? at - 6000 : begin,
			 end - at > 2000 ? at + 2000 : end);
	p = upper_of(p, begin, end);
	c->program[0] = 0;
	strcpy(c->program, p ? p->name : oom_program_of(c)->name);
}

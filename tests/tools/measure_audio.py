#!/usr/bin/env python3
"""Measures steps of small speech-language models with their audio, as measure_images.py does those with images.

    measure_audio.py ORACLE OUT.csv CONFIGS [TYPE ...]

The encoders' windows last two seconds (200 frames, of which the last steps' second window has half).
"""
import torch
import transformers

import measure_images as images
from image_batches import FEATURES, IMAGE, tokens
from measure_images import M, TEXT

FRAMES, MELS = 200, 80                          # of a window; bins of a frame
SECONDS = (2, 2, 2, 3)                          # of audio, of each step
HEARS = dict(num_mel_bins=MELS, max_source_positions=FRAMES // 2)
WHISPER = dict(HEARS, d_model=192, encoder_ffn_dim=384, encoder_layers=3, encoder_attention_heads=4)
NAMED = dict(HEARS, hidden_size=192, intermediate_size=384, num_hidden_layers=3, num_attention_heads=4)
MODELS = {}


def lengths(seconds):
    """Frames of each window."""
    return [min(FRAMES, 100 * seconds - at) for at in range(0, 100 * seconds, FRAMES)]


def windows(mask, each):
    """Windows that are padded to their end, perhaps with a mask of that name; features of so many frames."""
    def batch(cfg, b, s, seconds, dt):
        n = lengths(seconds)
        FEATURES["of each"] = [each(cfg, x) for x in n]
        d = tokens(b, s, 1, sum(FEATURES["of each"]))
        d["input_features"] = torch.rand(b * len(n), MELS, FRAMES).to(dt)
        if mask:
            d[mask] = torch.tensor([[1] * x + [0] * (FRAMES - x) for x in n] * b)
        return d
    return batch


def pooled(cfg, frames):
    return ((frames - 1) // 2 + 1 - 2) // 2 + 1


def stacked(cfg, frames):
    a = cfg.audio_config
    return FRAMES // 2 * a.hidden_size // a.intermediate_size


def quarters(cfg, frames):
    return ((frames - 1) // 2 + 1) // 4


def heard(n_window, each):
    """Recordings as they are, with a mask; features of so many frames (the thinkers of Qwen's Omni)."""
    def batch(cfg, b, s, seconds, dt):
        frames = 100 * seconds
        FEATURES["of each"] = [frames]
        d = tokens(b, s, 1, each(frames))
        d["input_features"] = torch.rand(b, MELS, frames).to(dt)
        d["feature_attention_mask"] = torch.tensor([[1] * frames] * b)
        return d
    return batch


def conformed(cfg, b, s, seconds, dt):
    """Pairs of frames as rows, of which window_size become window_size / downsample_rate features (Granite)."""
    rows = 50 * seconds
    n = -(-rows // cfg.window_size) * (cfg.window_size // cfg.downsample_rate)
    FEATURES["of each"] = [n]
    d = tokens(b, s, 1, n)
    d["input_features"] = torch.rand(b, rows, 2 * MELS).to(dt)
    d["input_features_mask"] = torch.tensor([[True] * n] * b)
    return d


def chunks_are_known():
    """How recordings are cut is read from their lengths, which the emulation does not hold."""
    import transformers.models.qwen2_5_omni.modeling_qwen2_5_omni as two
    import transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe as three

    def cut(features, lengths, n_window, kwargs=None):
        frames = FEATURES["of each"][0]
        n = [min(2 * n_window, frames - at) for at in range(0, frames, 2 * n_window)] * lengths.shape[0]
        parts = features.T.split(n, dim=0)
        return torch.nn.utils.rnn.pad_sequence(parts, batch_first=True).transpose(1, 2), torch.tensor(n)

    def pairs(lengths, kwargs=None):
        half = (FEATURES["of each"][0] - 1) // 2 + 1
        return torch.tensor([half * j + 2 * i for j in range(lengths.shape[0]) for i in range(half // 2)])

    def bounds(chunks, lengths, n_window_infer, n_window, kwargs=None):
        n, window, at = eighths(FEATURES["of each"][0]), eighths(2 * n_window) * (n_window_infer // (2 * n_window)), [0]
        for _ in range(lengths.shape[0]):
            at += [at[-1] + min(window * (i + 1), n) for i in range(-(-n // window))]
        return torch.tensor(at, dtype=torch.int32)

    two.chunk_and_pad_features = three.chunk_and_pad_features = cut
    two.get_pool_indices, three.get_audio_cu_seqlens = pairs, bounds


def eighths(frames):
    rest = (frames % 100 - 1) // 2 + 1
    return ((rest - 1) // 2 + 1 - 1) // 2 + 1 + frames // 100 * 13


def model(name, batch, text, audio, **config):
    hears = dict(audio_config=audio) if audio else {}
    MODELS[name] = (dict(config, **hears, model_type=name, text_config=dict(TEXT, **text)), batch)


model("qwen2_audio", windows("feature_attention_mask", pooled), dict(model_type="qwen2"),
      dict(WHISPER, model_type="qwen2_audio_encoder"), audio_token_index=IMAGE, audio_token_id=IMAGE)
model("audioflamingo3", windows("input_features_mask", pooled), dict(model_type="qwen2"),
      dict(NAMED, model_type="audioflamingo3_encoder"), audio_token_id=IMAGE)
model("voxtral", windows(None, stacked), dict(model_type="llama"), dict(NAMED, model_type="voxtral_encoder"),
      audio_token_id=IMAGE)


model("glmasr", windows("input_features_mask", quarters), dict(model_type="llama"),
      dict(NAMED, model_type="glmasr_encoder", num_key_value_heads=2, intermediate_size=768,
           max_position_embeddings=FRAMES // 2), audio_token_id=IMAGE)
model("musicflamingo", windows("input_features_mask", pooled), dict(model_type="qwen2"),
      dict(NAMED, model_type="audioflamingo3_encoder"), audio_token_id=IMAGE)
model("granite_speech", conformed, dict(model_type="granite"), None, audio_token_index=IMAGE, audio_token_id=IMAGE,
      has_lora_adapter=False,
      encoder_config=dict(model_type="granite_speech_encoder", input_dim=2 * MELS, num_layers=4, hidden_dim=192, num_heads=4,
                          dim_head=48, context_size=60, max_pos_emb=64, feedforward_mult=2),
      projector_config=dict(model_type="blip_2_qformer", hidden_size=128, intermediate_size=256, num_hidden_layers=2,
                            num_attention_heads=4, encoder_hidden_size=192, cross_attention_frequency=1))
OMNI = dict(HEARS, d_model=192, encoder_layers=3, encoder_attention_heads=4, encoder_ffn_dim=384, n_window=50, output_dim=256)
SEES = dict(images.DEEP, fullatt_block_indexes=[1])
TOKENS = dict(image_token_id=2002, image_token_index=2002, video_token_id=2003, audio_token_id=IMAGE, vision_start_token_id=2004,
              audio_start_token_id=2006)
model("qwen2_5_omni_thinker", heard(50, lambda n: ((n - 1) // 2 + 1 - 2) // 2 + 1),
      dict(model_type="qwen2_5_omni_text", rope_parameters=images.AXES), dict(OMNI, model_type="qwen2_5_omni_audio_encoder"),
      vision_config=dict(SEES, model_type="qwen2_5_omni_vision_encoder"), **TOKENS)
model("qwen3_omni_moe_thinker", heard(50, eighths),
      dict(images.SPARSE, model_type="qwen3_omni_moe_text", head_dim=64, rope_parameters=images.AXES),
      dict(OMNI, model_type="qwen3_omni_moe_audio_encoder", downsample_hidden_size=32, n_window_infer=200, conv_chunksize=500),
      vision_config=dict(images.DEEP, model_type="qwen3_omni_moe_vision_encoder", deepstack_visual_indexes=[0, 1],
                         num_position_embeddings=64), **TOKENS)


PLAIN = ("granite_speech",)                     # takes neither fused attention nor checkpoints


def run(name, i, backend):
    config, batch = MODELS[name]
    step, seconds = dict(images.STEPS[i]), SECONDS[i]
    step.pop("images", 1)
    if name in PLAIN:
        step.update(attn="eager", grad_ckpt=False)
    task = "image-text" if "vision_config" in config else "seq2seq"
    spec = M.normalise(dict(step, config=config, task=task, seq_len=256, id="%s-%d" % (name, i), model=name,
                            optimizer="adamw"))

    def make_batch(spec, cfg, be):
        b, s = spec["micro_batch"], spec["seq_len"]
        d = batch(cfg, b, s, seconds, M.weight_dtype(spec))
        if spec["padding_mask"]:
            d["attention_mask"] = torch.tensor([[1] * (s - 1) + [0]] + [[1] * s] * (b - 1))
        return d
    M.make_batch = make_batch
    row = M.run_spec(spec, backend)
    row.update(id=spec["id"], audio_seconds=seconds)
    return row, M.load_config(spec)


def prepared_here():
    return images.prepared({"seq2seq": transformers.AutoModelForSeq2SeqLM, "image-text": transformers.AutoModelForImageTextToText})


if __name__ == "__main__":
    backend = prepared_here()
    chunks_are_known()
    images.measure(backend, "audio_seconds", MODELS, run, len(images.STEPS))

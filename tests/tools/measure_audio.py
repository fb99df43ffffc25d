#!/usr/bin/env python3
"""Measures steps of small speech-language models with their audio, as measure_images.py does those with images.

    measure_audio.py ORACLE OUT.csv CONFIGS [TYPE ...]

The encoders' windows last two seconds (200 frames, of which the last steps' second window has half).
"""
import torch
import transformers

import measure_images as images
from measure_images import FEATURES, IMAGE, M, TEXT, tokens

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


def model(name, batch, text, audio, **config):
    MODELS[name] = (dict(config, model_type=name, text_config=dict(TEXT, **text), audio_config=audio), batch)


model("qwen2_audio", windows("feature_attention_mask", pooled), dict(model_type="qwen2"),
      dict(WHISPER, model_type="qwen2_audio_encoder"), audio_token_index=IMAGE, audio_token_id=IMAGE)
model("audioflamingo3", windows("input_features_mask", pooled), dict(model_type="qwen2"),
      dict(NAMED, model_type="audioflamingo3_encoder"), audio_token_id=IMAGE)
model("voxtral", windows(None, stacked), dict(model_type="llama"), dict(NAMED, model_type="voxtral_encoder"),
      audio_token_id=IMAGE)


def run(name, i, backend):
    config, batch = MODELS[name]
    step, seconds = dict(images.STEPS[i]), SECONDS[i]
    step.pop("images", 1)
    spec = M.normalise(dict(step, config=config, task="seq2seq", seq_len=256, id="%s-%d" % (name, i), model=name,
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
    return images.prepared({"seq2seq": transformers.AutoModelForSeq2SeqLM})


if __name__ == "__main__":
    images.measure(prepared_here(), "audio_seconds", MODELS, run, len(images.STEPS))

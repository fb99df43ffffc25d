#!/usr/bin/env python3
"""Draws two techniques at a time over many model types, for the oracle to measure: a line of JSON each.

    draw_techniques.py ORACLE_FOLDER CONFIGS_FOLDER SEED COUNT > runs.jsonl

ORACLE_FOLDER holds measure_memory.py and measure_trainer.py, CONFIGS_FOLDER configs of real models.  Needs the oracle's
torch, transformers and PEFT.  A line is what measure_trainer.py reads (`tech`, `x`), and under `knobs` the same run in this
program's columns.  Techniques stand in groups of which one run takes at most one (a loss, an objective, adapters, a base,
what is frozen, checkpointing, packing, noise, a mean of weights, the optimizer, accumulation); each pair of groups that
may stand together comes in turn, its members and the model are drawn.

The rows of tests/accuracy/pairs.csv are seeds 1601 (110), 2602 (120), 3703 (90, of which 66 ran in time), 4804 (100), 5905 (100), 310726 (110, of which 102 ran) and 918273
(110, of which 100 ran) of 2026-11-26, measured with torch 2.14.1, transformers 5.12.1 and PEFT 0.20.1.dev0 before anything was mended for them; six of T5's kin in fp16 stand beside them.  470311 (40, of which 36 ran), 580412 (25
triples: three groups at a time, of which 24 ran) and 690513 (32 runs of the real Trainer with optim, clipping and smoothing drawn, ids of h,
of which 27 ran) were measured in the same way, and after what those showed had been mended 733119 (45, of which 38 ran), 844227 (25 triples,
22) and 955331 (32 of the Trainer, 28).  161201 (34 of the Trainer, 29 ran), 161402 (36 pairs, 35) and 271803 (40 of the Trainer, 32) are of 2026-11-26, real
configs among them; those of 271803 were priced after the Trainer's loop had a knob.
717171 (40 of the Trainer, 38 ran; of optim, rmsprop and adagrad step tensor by tensor on emulated cards, foreach on real ones), 626262 (26,
20), 828282 (40 pairs, 36) and 939393 (34 triples, 32) were priced before anything was changed, too: of them only runs that were wrong are rows.
Ids of e are runs made to find a cause: attention of MVP (e6), adapters of shared tables (e7), LLM.int8 behind checkpoints (e9).
928001 (40 pairs, 35 ran) and 928002 (44, 38) of 2026-11-27 were priced before anything was changed, too, and are no rows: 34 of each were within 0.1 %.
415263 (26 pairs, 24 ran), 526374 (22 triples, 19) and 637485 (34 of the Trainer, 33) are of 2026-11-26 too, priced before anything was changed.  Their reserved bytes are left out where the run evaluates, which the
replay of two steps does not.  928001 (40, of which 35 ran) is of 2026-11-27: 34 were exact to the byte, one whose teacher
was counted in 8 bit as its student is a row.  `ret-` are blocks that return their attention weights, behind reentrant checkpoints.
Left out are what the libraries or the program refuse, what is announced as approximated and far off (xLSTM, MRA, T5Gemma 2, stages of SegFormer frozen by a name), six rows
whose reference model is quantised (the emulation does not count its scales, or leaves it as it is), one whose drop paths it reads as
0 (Swin), two of Muon, of which the emulation chooses the
matrices by names, and one in which it counts a view of a head saved whole (a mean of the weights over modules_to_save), or of which it counts
the update in place (SeamlessM4T v2 with SGD; bert-generation and Mistral with a module saved whole and SGD, where PyTorch's profiler sees no
allocation in param.add_), and Apertus with
Adafactor, whose scalars of an activation are registered behind a layer's matrices (1.6 % too high).  Counters of optimizers that step in the
backward pass are counted by the emulation and lie on the host in truth: 512 bytes a tensor."""
import contextlib
import itertools
import json
import os
import random
import re
import sys

os.environ.setdefault('PYTORCH_JIT', '0')
ORACLE, CONFIGS, SEED, COUNT = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
sys.path.insert(0, ORACLE)
import torch  # noqa: E402
import measure_memory as oracle  # noqa: E402

R = random.Random(SEED)
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..')
POPULAR = ('llama mistral qwen2 qwen3 gemma gemma2 gemma3_text phi3 phi gpt2 gpt_neox olmo olmo2 granite mixtral qwen3_moe '
           'qwen2_moe opt bloom falcon stablelm starcoder2 cohere cohere2 glm glm4 smollm3 ernie4_5 olmoe gpt_oss deepseek_v3 '
           'gptj codegen mpt exaone4 helium nemotron granitemoe hunyuan_v1_dense seed_oss lfm2 mamba jamba bamba').split()
ENCODERS = 'bert roberta deberta-v2 distilbert electra albert modernbert mpnet camembert xlm-roberta eurobert'.split()
SEQ2SEQ = 't5 bart mbart pegasus mt5 umt5 blenderbot marian m2m_100 longt5 led prophetnet'.split()
VISION = 'vit swin convnext beit dinov2 resnet'.split()


def linear_names(model):
    head = model.get_output_embeddings() if hasattr(model, 'get_output_embeddings') else None
    names = sorted({path.split('.')[-1] for path, m in model.named_modules()
                    if (type(m) is torch.nn.Linear or type(m).__name__ == 'Conv1D') and m is not head})
    return [n for n in names if not n.isdigit() and 'classif' not in n and n not in ('score', 'fc', 'dense', 'gate')]


class Run:
    """A drawn run: the oracle's spec, its techniques and this program's columns."""

    def __init__(self, spec, model, config):
        self.spec, self.model, self.config = spec, model, config
        self.tech, self.x, self.knobs, self.plain, self.adapted = [], {}, {}, False, False

    def ok(self, good):
        if not good:
            raise LookupError
        return self

    def targets(self):
        names = linear_names(self.model)
        self.ok(names)
        return '+'.join(R.sample(names, min(len(names), R.choice([1, 2, 3]))))

    def lora(self, **kw):
        self.adapted = True
        r = R.choice([4, 8, 16, 64])
        self.spec.update(lora_r=r, lora_targets=self.targets())
        if R.random() < .3 and not any(type(m).__name__.endswith('Experts') for m in self.model.modules()):
            self.spec['lora_targets'] = 'all-linear'
        if kw:
            self.tech.append('lora')
            self.x['lora'] = kw

    def peft(self, kind, word, r=0, **kw):
        self.adapted = True
        self.ok(self.spec['task'] == 'causal-lm')
        cfg = dict(kind=kind, task_type='CAUSAL_LM', **kw)
        self.x['peft'] = cfg
        self.knobs.update(peft_type=word, lora_r=r)
        return cfg


def losses(run):
    s = run.spec
    run.ok(s['task'] in ('causal-lm', 'seq2seq'))
    pick = R.choice(['sft', 'chunked', 'smooth', 'keep', 'fused'] if s['task'] == 'causal-lm' else ['smooth', 'keep'])
    if pick == 'sft':
        run.tech.append('sft')
        run.knobs['fused_ce'] = 'sft'
    elif pick == 'chunked':
        run.ok(not run.spec['padding_mask'])
        run.tech.append('sft_chunked')
        run.x['chunk'] = R.choice([64, 256])
        run.knobs.update(fused_ce='chunked_nll', loss_chunk=run.x['chunk'])
    elif pick == 'smooth':
        run.tech.append('trainer')
        run.x['label_smoothing'] = .1
        run.knobs['label_smoothing_factor'] = .1
    elif pick == 'keep':
        run.plain = True
        run.tech.append('keep')
        run.knobs['keep_outputs'] = True
    else:
        run.plain = True
        run.spec['fused_ce'] = True


def objectives(run):
    pick = R.choice(['dpo', 'dpo', 'orpo', 'grpo', 'grpo', 'kd', 'reward'])
    run.ok(run.spec['task'] == 'causal-lm' and not run.spec['padding_mask'])
    run.spec['micro_batch'] = min(run.spec['micro_batch'], 3)
    run.tech.append(pick)
    if pick == 'reward':
        run.ok(run.config.model_type in oracle_types('seq-cls'))
        run.spec.update(task='seq-cls', num_labels=1)
        run.knobs['objective'] = 'reward'
    elif pick == 'kd':
        run.knobs['objective'] = 'distill'
        run.knobs['teacher'] = 'SELF'
        run.x['teacher_layers'] = run.spec['num_layers'] + 1
    elif pick == 'orpo':
        run.knobs['objective'] = 'orpo'
    else:
        run.x['ref'] = R.choice(['model', 'precomputed'])
        run.knobs.update(objective=pick, reference='model' if run.x['ref'] == 'model' else 'none')
        if pick == 'grpo':
            run.x['completion'] = R.choice([32, 100, 128])
            run.ok(run.spec['seq_len'] > run.x['completion'] + 8)
            run.knobs['completion_len'] = run.x['completion']


def oracle_types(task):
    return {c.model_type for c in oracle.auto_class(task)._model_mapping.keys()}


def head_of(run):
    head = run.model.get_output_embeddings()
    for name, m in run.model.named_modules():
        if m is head and head is not None:
            return name.split('.')[-1]
    raise LookupError


def embedding_of(run):
    emb = run.model.get_input_embeddings()
    for name, m in run.model.named_modules():
        if m is emb and type(m) is torch.nn.Embedding:
            return name.split('.')[-1]
    raise LookupError


def adapters(run):
    pick = R.choice(['plain', 'plain', 'dora', 'dora', 'head', 'embed', 'bias', '16bit', 'tokens', 'dropout', 'layers', 'ia3', 'vera',
                     'miss', 'fourier', 'oft', 'prompt', 'ptuning', 'prefix', 'ln'])
    run.ok(run.spec['task'] != 'image-cls' or pick in ('plain', 'dora', 'dropout'))
    if pick == 'plain':
        run.lora()
    elif pick == 'dora':
        run.lora(use_dora=True)
        run.knobs['use_dora'] = True
    elif pick in ('head', 'embed'):
        name = head_of(run) if pick == 'head' else embedding_of(run)
        run.lora(modules_to_save=[name])
        run.knobs['modules_to_save'] = name
    elif pick == 'bias':
        run.lora(bias=R.choice(['all', 'lora_only']))
        run.knobs['lora_bias'] = run.x['lora']['bias']
    elif pick == '16bit':
        run.lora(use_rslora=True)
        run.x['adapter_fp32'] = False
        run.knobs['autocast_adapter_dtype'] = False
    elif pick == 'tokens':
        embedding_of(run)
        run.lora(trainable_token_indices=list(range(100)))
        run.knobs['trainable_tokens'] = 100
    elif pick == 'dropout':
        run.lora()
        run.ok(not any(type(m).__name__.endswith('Experts') for m in run.model.modules()))
        run.spec['lora_dropout'] = .05
    elif pick == 'layers':
        run.lora(layers_to_transform=[0, 1])
        run.ok(run.spec['lora_targets'] != 'all-linear')
        run.knobs['layers_to_transform'] = '0+1'
    elif pick in ('prompt', 'ptuning', 'prefix'):
        n = R.choice([8, 20, 64])
        kind = {'prompt': 'PromptTuningConfig', 'ptuning': 'PromptEncoderConfig', 'prefix': 'PrefixTuningConfig'}[pick]
        run.peft(kind, {'prompt': 'prompt-tuning', 'ptuning': 'p-tuning', 'prefix': 'prefix-tuning'}[pick], num_virtual_tokens=n)
        run.ok(pick != 'prefix' or not run.spec['grad_ckpt'])
        run.knobs['num_virtual_tokens'] = n
        if pick == 'ptuning':
            run.x['peft']['encoder_hidden_size'] = 128
            run.knobs['encoder_hidden_size'] = 128
    elif pick == 'ln':
        run.peft('LNTuningConfig', 'ln-tuning')
    else:
        kind, word, field, r = {'ia3': ('IA3Config', 'ia3', None, 0), 'vera': ('VeraConfig', 'vera', 'r', 64), 'miss': ('MissConfig', 'miss', 'r', 64),
                                'fourier': ('FourierFTConfig', 'fourierft', 'n_frequency', 500), 'oft': ('OFTConfig', 'oft', 'oft_block_size', 32)}[pick]
        cfg = run.peft(kind, word, r)
        names = linear_names(run.model)
        run.ok(names)
        names = R.sample(names, min(len(names), R.choice([1, 2])))
        cfg['target_modules'] = names
        if pick == 'ia3':
            cfg['feedforward_modules'] = [n for n in names if n in ('down_proj', 'fc2', 'dense_4h_to_h', 'w2')]
        if field:
            cfg[field] = r
        if pick == 'oft':
            cfg['r'] = 0
        run.knobs['lora_targets'] = '+'.join(names)


def bases(run):
    s = run.spec
    run.ok(s['task'] in ('causal-lm', 'seq2seq') and run.config.model_type not in ('gpt2', 'gpt_bigcode', 'xlnet', 'openai-gpt'))
    s['precision'] = R.choice(['bf16', 'bf16-amp'])
    if not run.adapted:
        run.lora()
    if R.random() < .35:
        run.tech.append('int8')
        run.knobs['base_weights'] = 'int8'
    else:
        s.update(qlora=True, kbit_prepare=R.random() < .6, double_quant=R.random() < .6)


def frozen(run):
    run.ok(not run.adapted and not run.spec['qlora'])
    what = R.choice(['embed', 'norm', 'layers', 'mlp'])
    pattern = {'embed': 'embed|wte|word_embeddings', 'norm': '[Nn]orm|ln_', 'layers': r'\.(0|1)\.', 'mlp': 'mlp|feed_forward|fc1|fc2'}[what]
    run.ok(any(re.search(pattern, n) for n, _ in run.model.named_parameters()))
    run.x['freeze'] = pattern
    run.knobs['freeze'] = pattern


def checkpoints(run):
    pick = R.choice(['full', 'full', 'reentrant', 'selective', 'attention'])
    run.ok(getattr(type(run.model), 'supports_gradient_checkpointing', False) and run.knobs.get('peft_type') != 'prefix-tuning')
    run.spec['grad_ckpt'] = True
    if pick == 'reentrant':
        run.tech.append('reentrant')
        run.knobs['use_reentrant'] = True
    elif pick != 'full':
        run.tech.append('selective')
        if pick == 'attention':
            run.x['save'] = 'attention'
        run.knobs['grad_ckpt'] = 'selective' if pick == 'selective' else 'selective-attention'


def packing(run):
    run.ok(run.spec['task'] == 'causal-lm' and not run.spec['padding_mask'] and 'dpo' not in run.tech)
    run.tech.append('packed')
    run.knobs['packing'] = True


def noise(run):
    run.ok(run.spec['task'] != 'image-cls')
    run.tech.append('neftune')
    run.knobs['neftune_noise_alpha'] = 5


def means(run):
    run.plain = True
    word = R.choice(['foreach', 'loop', 'fp32', 'loop-fp32'])
    run.tech.append('ema')
    run.x['ema'] = 'loop' if 'loop' in word else 'foreach'
    if 'fp32' in word:
        run.x['ema_fp32'] = True
    run.knobs['ema'] = word


OPTIMIZERS = {'adamw': {}, 'adamw-8bit': {}, 'adamw-8bit-embfp32': {}, 'paged-adamw-8bit': {}, 'adafactor': {}, 'sgd-momentum': {}, 'lion-8bit': {},
              'adamw-bnb32': {}, 'muon': {'opt': 'muon'}, 'amsgrad': {'opt': 'amsgrad'}, 'adamw-loop': {'opt': 'forloop'},
              'rmsprop': {'opt': 'rmsprop'}, 'adagrad': {'opt': 'adagrad'}}


def optimizers(run):
    run.plain = True
    if R.random() < .3:
        run.tech.append('inbackward')
        run.spec['optimizer'] = R.choice(['adamw', 'adamw-fused', 'adamw-8bit', 'sgd-momentum'])
        run.knobs['optimizer_in_bwd'] = True
        return
    word = R.choice(sorted(OPTIMIZERS))
    run.spec['optimizer'] = 'adamw' if OPTIMIZERS[word] else word
    run.x.update(OPTIMIZERS[word])
    run.knobs['optimizer'] = word


def accumulation(run):
    run.ok('inbackward' not in run.tech)
    run.spec['grad_accum'] = R.choice([2, 3])


GROUPS = [adapters, losses, objectives, bases, checkpoints, frozen, packing, noise, means, optimizers, accumulation]
# what cannot stand together, and loops that only one of the oracle's runs
NEVER = {(losses, objectives), (frozen, bases), (adapters, frozen), (objectives, means), (objectives, optimizers)}
PAIRS = [p for p in itertools.combinations(GROUPS, 2) if p not in NEVER]


def base_spec(kind, task):
    return dict(model=kind, family=kind, config={'model_type': kind}, num_layers=R.choice([2, 3, 4]), task=task,
                micro_batch=R.choice([1, 2, 3, 4, 6]), seq_len=R.choice([64, 128, 200, 333, 512, 777, 1024]),
                precision=R.choice(['bf16', 'amp-bf16', 'bf16-amp', 'bf16', 'amp-bf16', 'fp32', 'fp16']),
                attn=R.choice(['eager', 'sdpa', 'sdpa', 'sdpa', 'flash']), padding_mask=R.random() < .2, grad_ckpt=False, optimizer='adamw-fused',
                lora_r=0, lora_targets='', lora_dropout=0.0, qlora=False, kbit_prepare=False, double_quant=True, fused_ce=False,
                grad_accum=1)


def built(spec):
    for attn in (spec['attn'], 'eager'):
        try:
            config = oracle.load_config(oracle.normalise(spec))
            with torch.device('meta'), contextlib.redirect_stdout(sys.stderr):
                model = oracle.auto_class(spec['task']).from_config(config, attn_implementation='eager' if attn == 'eager' else 'sdpa')
        except Exception:  # whatever a library raises: this kernel it does not have
            continue
        spec['attn'] = attn
        return config, model
    raise LookupError


def finish(run, pair):
    s = run.spec
    trainer = bool(set(run.tech) & {'trainer', 'sft', 'sft_chunked', 'dpo', 'orpo', 'grpo', 'kd', 'reward'})
    run.ok(not (trainer and run.plain))
    if trainer and s['precision'] in ('fp16', 'amp-fp16'):
        s['precision'] = 'bf16'
    longest = getattr(run.config.get_text_config(), 'max_position_embeddings', 0) or 0
    if 0 < longest <= 1026 and s['seq_len'] > longest - 80:
        s['seq_len'] = 200
        run.ok(longest > 300 and run.knobs.get('completion_len', 0) < 190)
    convert = 'amp' in s['precision'] and bool(set(run.tech) & {'trainer', 'sft'})
    cols = {k: s[k] for k in ('num_layers', 'task', 'micro_batch', 'seq_len', 'precision', 'attn', 'padding_mask', 'grad_ckpt', 'optimizer', 'lora_r',
                              'lora_targets', 'lora_dropout', 'qlora', 'kbit_prepare', 'double_quant', 'fused_ce', 'grad_accum')}
    cols['convert_outputs_fp32'] = convert
    if s['task'] == 'seq-cls':
        cols['num_labels'] = s['num_labels']
    cols.update(run.knobs)
    return dict(s, tech='+'.join(run.tech), x=run.x, knobs=cols, pair='+'.join(f.__name__ for f in pair))


def draw(pair, tasks):
    task = R.choice(['causal-lm'] * 7 + ['seq2seq', 'masked-lm', 'seq-cls', 'image-cls'])
    if any(f in (losses, objectives, packing, bases) for f in pair):
        task = R.choice(['causal-lm'] * 6 + ['seq2seq']) if not any(f in (objectives, packing) for f in pair) else 'causal-lm'
    wanted = {'causal-lm': POPULAR, 'seq2seq': SEQ2SEQ, 'masked-lm': ENCODERS, 'seq-cls': ENCODERS + POPULAR[:8], 'image-cls': VISION}[task]
    kind = R.choice([k for k in wanted if k in tasks[task]] if R.random() < .75 else sorted(tasks[task]))
    spec = base_spec(kind, task)
    if task == 'image-cls':
        spec.update(seq_len=0, padding_mask=False, attn='sdpa' if spec['attn'] == 'flash' else spec['attn'])
    if spec['attn'] == 'flash' and (spec['padding_mask'] or spec['precision'] == 'fp32' or packing in pair):
        spec['attn'] = 'sdpa'
    config, model = built(spec)
    if sum(p.numel() for p in model.parameters()) > 30e9:
        raise LookupError
    run = Run(spec, model, config)
    for f in pair:
        f(run)
    return finish(run, pair)


def main():
    with open(os.path.join(ROOT, 'data', 'model_types.jsonl')) as f:
        known = {line.split('\t', 1)[0] for line in f}
    tasks = {t: oracle_types(t) & known for t in ('causal-lm', 'masked-lm', 'seq-cls', 'image-cls', 'seq2seq')}
    order = PAIRS[:]
    R.shuffle(order)
    drawn = at = 0
    while drawn < COUNT:
        pair = order[at % len(order)]
        for _ in range(40):
            try:
                spec = draw(pair, tasks)
                break
            except LookupError:
                spec = None
        at += 1
        if spec is None:
            continue
        spec['id'] = 'p%d-%03d-%s-%s' % (SEED, drawn, spec['family'], spec['pair'].replace('+', '-'))
        print(json.dumps(spec), flush=True)
        drawn += 1


if __name__ == '__main__':
    main()

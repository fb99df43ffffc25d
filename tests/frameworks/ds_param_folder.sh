ROOT=$(cd "$(dirname "$0")" && pwd)
torchrun --nproc_per_node 8 train_dpo.py --model_name_or_path some-org/Small-7B --per_device_train_batch_size 1 --bf16 True \
  --dataset_name some/pairs --deepspeed ${ROOT}/configs/zero2.json

torchrun --nproc_per_node=4 internvl/train/internvl_chat_mpo.py \
  --model_name_or_path ./models/Some-VL-1B \
  --conv_style some-style \
  --meta_path ./data/meta.json \
  --per_device_train_batch_size 2 \
  --bf16 True --max_seq_length 3000 --loss_type sigmoid,bco_pair --grad_checkpoint True

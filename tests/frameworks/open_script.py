from trl import SFTConfig, SFTTrainer


def run(model, data, **more):
    return SFTTrainer(model, train_dataset=data, args=SFTConfig("out", max_length=700, **more))

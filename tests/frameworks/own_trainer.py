from mine import LOMOTrainer


def main():
    trainer = LOMOTrainer(model, args)
    trainer.train()


main()

llamafactory-cli train llamafactory_lora.yaml
llamafactory-cli train another.yaml

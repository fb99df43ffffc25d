#!/bin/bash
#SBATCH --nodes=1
srun bash called_train.sh 1b 4

#!/bin/bash
bash called_train.sh --size 7b

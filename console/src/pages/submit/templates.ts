/** Specs to start from. */

export interface Template {
  name: string;
  text: string;
}

const SCRIPT = `# A program of your own, started as torchrun does. The server must be able to read its path.
name: my-script
workload:
  kind: script
  entrypoint: /data/train.py
  args: ["--epochs", "3"]
layout:
  dp: {min: 1, target: 2, max: 4}
resources:
  device: cpu
  cpus: 1
labels:
  team: nlp
`;

const BUILTIN = `# A language model that the product trains, from text files.
name: my-model
workload:
  kind: builtin
  model: {family: transformer, dim: 256, layers: 4, heads: 4}
  data:
    train: ["/data/*.txt"]
layout:
  dp: {min: 1, target: 2, max: 4}
training:
  global_batch: 32
  micro_batch: 8
  sequence: 256
  steps: 1000
  optimizer: {lr: 3.0e-4}
  schedule: {name: cosine, warmup_steps: 50}
checkpoint:
  every_steps: 200
  keep_last: 3
resources:
  device: cpu
  cpus: 1
`;

const FUNCTION = `# A function of your own with the library: samples, steps and state are in your hands.
# It needs your code on the nodes: submit it with \`regroup submit\`, which uploads the folder, or name an archive.
name: my-function
workload:
  kind: function
  function: my_module:train
args: {lr: 0.01}
training:
  global_batch: 64
  micro_batch: 8
  steps: 200
layout:
  dp: {min: 1, target: 2, max: 4}
checkpoint:
  every_steps: 50
`;

const AUTO = `# A GPU job whose layout the planner chooses.
name: my-large-model
workload:
  kind: builtin
  model: {family: transformer, dim: 4096, layers: 32, heads: 32}
  data:
    train: ["/data/*.txt"]
layout: auto
resources:
  device: cuda
training:
  global_batch: 512
  sequence: 4096
  steps: 100000
  precision: bf16
checkpoint:
  every: 10m
`;

export const TEMPLATES: readonly [Template, ...Template[]] = [
  { name: "Script", text: SCRIPT },
  { name: "Language model", text: BUILTIN },
  { name: "Training function", text: FUNCTION },
  { name: "Large model, layout by the planner", text: AUTO },
];

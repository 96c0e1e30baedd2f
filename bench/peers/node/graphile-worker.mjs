// graphile-worker: one runner in this process with 64 slots. It fetches in batches of 500 and waits at most a
// millisecond for further finished jobs of a batch, as its page about performance recommends.

import { main } from "./meter.mjs";

const BATCHED = { localQueue: { size: 500 }, completeJobBatchDelay: 1, failJobBatchDelay: 1 };

main({
  async open(order, imported) {
    const { Logger, makeWorkerUtils, run } = await imported("graphile-worker");
    const common = { connectionString: order.address, logger: new Logger(() => () => {}) };
    const utils = await makeWorkerUtils(common);
    await utils.migrate();
    return { utils, run, common };
  },
  send: ({ utils }) => utils.addJob("noop", {}),
  sendMany: ({ utils }, jobs) => utils.addJobs(Array.from({ length: jobs }, () => ({ identifier: "noop", payload: {} }))),
  work: ({ run, common }, noop) =>
    run({
      ...common,
      taskList: { noop },
      noHandleSignals: true,
      maxPoolSize: 10,
      preset: { worker: { concurrentJobs: 64, ...BATCHED } },
    }),
});

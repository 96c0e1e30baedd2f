-- What is added to the counters of one group: jobs under a lease, and jobs that wait in the queue.
create type group_change as (queue text collate "C", grp text collate "C", inflight integer, waiting integer);

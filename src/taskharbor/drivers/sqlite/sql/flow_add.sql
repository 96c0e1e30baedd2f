-- One more job of a workflow run.
-- in: flow id
INSERT INTO taskharbor_flows (id, members, open) VALUES (?, 1, 1)
ON CONFLICT (id) DO UPDATE SET members = members + 1, open = open + 1

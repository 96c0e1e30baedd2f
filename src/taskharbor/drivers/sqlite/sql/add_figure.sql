-- Add to a number of a minute.
-- in: minute, queue, name, how much
INSERT INTO taskharbor_figures (minute, queue, name, number) VALUES (?, ?, ?, ?)
ON CONFLICT (minute, queue, name) DO UPDATE SET number = number + excluded.number

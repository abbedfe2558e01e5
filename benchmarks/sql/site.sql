-- w01 | daily active users
SELECT CAST(started_at AS DATE) AS day, COUNT(DISTINCT user_id) AS dau FROM sessions GROUP BY day ORDER BY day;

-- w02 | monthly active users
SELECT DATE_TRUNC('month', started_at) AS month, COUNT(DISTINCT user_id) AS mau FROM sessions GROUP BY 1 ORDER BY 1;

-- w03 | weekly sessions
SELECT DATE_TRUNC('week', started_at) AS week, COUNT(*) AS sessions FROM sessions GROUP BY 1 ORDER BY 1;

-- w04 | bounce rate by device
SELECT device, AVG(CASE WHEN bounced THEN 1 ELSE 0 END) AS bounce_rate, COUNT(*) AS sessions FROM sessions GROUP BY device;

-- w05 | bounce rate by landing page
SELECT landing_page, SUM(CAST(bounced AS INTEGER)) * 100.0 / COUNT(*) AS pct FROM sessions GROUP BY landing_page ORDER BY pct DESC;

-- w06 | length of a session in minutes
SELECT device, AVG(DATE_DIFF('minute', started_at, ended_at)) AS minutes FROM sessions GROUP BY device;

-- w07 | length of a session in seconds, Spark
-- dialect: spark
SELECT browser, AVG(timestampdiff(SECOND, started_at, ended_at)) AS seconds FROM sessions GROUP BY browser;

-- w08 | page views by path
SELECT path, COUNT(*) AS views, COUNT(DISTINCT user_id) AS visitors FROM page_views GROUP BY path ORDER BY views DESC;

-- w09 | page views by section
SELECT pg.section, COUNT(*) AS views FROM page_views pv LEFT JOIN pages pg ON pg.path = pv.path GROUP BY pg.section;

-- w10 | page views by section, comma join
SELECT section, COUNT(*) AS views FROM page_views, pages WHERE page_views.path = pages.path GROUP BY section;

-- w11 | slow pages
SELECT path, QUANTILE_CONT(load_ms, 0.95) AS p95 FROM page_views GROUP BY path ORDER BY p95 DESC;

-- w12 | median load time
SELECT APPROX_QUANTILE(load_ms, 0.5) AS p50 FROM page_views WHERE status = 200;

-- w13 | error rate by hour
SELECT EXTRACT(HOUR FROM viewed_at) AS h, SUM(CASE WHEN status >= 500 THEN 1 ELSE 0 END) * 1.0 / COUNT(*) AS errors FROM page_views GROUP BY h;

-- w14 | share of pages not found
SELECT COUNT(*) FILTER (WHERE status = 404) * 100.0 / COUNT(*) AS not_found FROM page_views;

-- w15 | traffic by campaign
SELECT utm_campaign, COUNT(*) AS sessions FROM sessions WHERE utm_campaign IS NOT NULL GROUP BY utm_campaign ORDER BY 2 DESC;

-- w16 | paid or organic
SELECT CASE WHEN utm_campaign IS NULL THEN 'organic' ELSE 'paid' END AS traffic, COUNT(*) AS n, AVG(CAST(bounced AS INT)) AS bounce FROM sessions GROUP BY traffic;

-- w17 | pages per session
SELECT COUNT(*) * 1.0 / COUNT(DISTINCT session_id) AS pages_per_session FROM page_views;

-- w18 | sessions per user
SELECT COUNT(*) * 1.0 / COUNT(DISTINCT user_id) AS sessions_per_user FROM sessions;

-- w19 | conversion by plan
SELECT u.plan, COUNT(DISTINCT CASE WHEN e.event = 'purchase' THEN e.user_id END) * 1.0 / COUNT(DISTINCT u.user_id) AS conversion
FROM users u LEFT JOIN events e ON e.user_id = u.user_id GROUP BY u.plan;

-- w20 | funnel
SELECT COUNT(DISTINCT user_id) AS visitors,
       COUNT(DISTINCT CASE WHEN event = 'add_to_cart' THEN user_id END) AS carts,
       COUNT(DISTINCT CASE WHEN event = 'purchase' THEN user_id END) AS buyers
FROM events;

-- w21 | funnel with flags
WITH flags AS (
  SELECT user_id, MAX(CASE WHEN event = 'add_to_cart' THEN 1 ELSE 0 END) AS cart, MAX(CASE WHEN event = 'purchase' THEN 1 ELSE 0 END) AS bought
  FROM events GROUP BY user_id)
SELECT SUM(cart) AS carts, SUM(cart * bought) AS both FROM flags;

-- w22 | A/B test: conversion
SELECT u.variant, COUNT(DISTINCT u.user_id) AS users, COUNT(DISTINCT e.user_id) AS buyers
FROM users u LEFT JOIN events e ON u.user_id = e.user_id AND e.event = 'purchase' GROUP BY u.variant;

-- w23 | A/B test: revenue per user
WITH r AS (SELECT user_id, SUM(revenue) AS revenue FROM events WHERE event = 'purchase' GROUP BY user_id)
SELECT u.variant, AVG(COALESCE(r.revenue, 0)) AS per_user FROM users u LEFT JOIN r ON r.user_id = u.user_id GROUP BY u.variant;

-- w24 | A/B test: difference
SELECT AVG(CASE WHEN u.variant = 'treatment' THEN e.revenue END) - AVG(CASE WHEN u.variant = 'control' THEN e.revenue END) AS lift
FROM events e JOIN users u ON u.user_id = e.user_id WHERE e.event = 'purchase';

-- w25 | revenue by source
SELECT u.source, SUM(e.revenue) AS revenue FROM events e JOIN users u USING (user_id) WHERE e.event = 'purchase' GROUP BY u.source;

-- w26 | revenue by device of the session
SELECT s.device, SUM(e.revenue) AS revenue FROM events e JOIN sessions s ON s.session_id = e.session_id WHERE e.event = 'purchase' GROUP BY s.device;

-- w27 | events per browser, joined on user and session
SELECT s.browser, e.event, COUNT(*) AS n FROM events e JOIN sessions s ON s.session_id = e.session_id AND s.user_id = e.user_id GROUP BY s.browser, e.event;

-- w28 | retention: active in the second month after signup
SELECT COUNT(DISTINCT u.user_id) AS retained FROM users u JOIN sessions s ON s.user_id = u.user_id
WHERE s.started_at >= u.created_at + INTERVAL 30 DAY AND s.started_at < u.created_at + INTERVAL 60 DAY;

-- w29 | retention by signup month
SELECT DATE_TRUNC('month', u.created_at) AS cohort, DATE_DIFF('month', u.created_at, s.started_at) AS age, COUNT(DISTINCT u.user_id) AS users
FROM users u JOIN sessions s ON s.user_id = u.user_id WHERE s.started_at >= u.created_at GROUP BY 1, 2 ORDER BY 1, 2;

-- w30 | stickiness
SELECT (SELECT AVG(dau) FROM (SELECT CAST(started_at AS DATE) AS d, COUNT(DISTINCT user_id) AS dau FROM sessions WHERE started_at >= '2024-06-01' AND started_at < '2024-07-01' GROUP BY 1) x)
     / (SELECT COUNT(DISTINCT user_id) FROM sessions WHERE started_at >= '2024-06-01' AND started_at < '2024-07-01') AS stickiness;

-- w31 | heat map of weekday and hour
SELECT DAYOFWEEK(started_at) AS wd, HOUR(started_at) AS h, COUNT(*) AS n FROM sessions GROUP BY ALL ORDER BY ALL;

-- w32 | top hosts of referring urls
SELECT REGEXP_EXTRACT(url, 'https://([^/]+)/', 1) AS host, COUNT(*) AS n FROM page_views GROUP BY host ORDER BY n DESC LIMIT 5;

-- w33 | url parameters
SELECT SPLIT_PART(url, '?', 2) AS query, COUNT(*) AS n FROM page_views GROUP BY 1 ORDER BY n DESC;

-- w34 | urls of the blog
SELECT COUNT(*) AS n FROM page_views WHERE url LIKE 'https://example.org/blog%';

-- w35 | pages that were read after documentation
SELECT COUNT(DISTINCT session_id) AS sessions FROM page_views WHERE SUBSTR(path, 1, 5) = '/docs';

-- w36 | sessions with an error
SELECT device, COUNT(*) AS n FROM sessions s WHERE EXISTS (
  SELECT 1 FROM events e WHERE e.user_id = s.user_id AND e.session_id = s.session_id AND e.event = 'error') GROUP BY device;

-- w37 | users who never bought
SELECT u.country, COUNT(*) AS n FROM users u LEFT JOIN events e ON e.user_id = u.user_id AND e.event = 'purchase' WHERE e.user_id IS NULL GROUP BY u.country;

-- w38 | users who bought twice
SELECT COUNT(*) AS n FROM (SELECT user_id FROM events WHERE event = 'purchase' GROUP BY user_id HAVING COUNT(*) >= 2) t;

-- w39 | growth of weekly sessions
SELECT week, sessions, sessions - LAG(sessions, 1) OVER (ORDER BY week) AS delta FROM (
  SELECT DATE_TRUNC('week', started_at) AS week, COUNT(*) AS sessions FROM sessions GROUP BY 1) t;

-- w40 | top three landing pages of each device
WITH t AS (SELECT device, landing_page, COUNT(*) AS n FROM sessions GROUP BY 1, 2)
SELECT * FROM (SELECT t.*, RANK() OVER (PARTITION BY device ORDER BY n DESC) AS r FROM t) x WHERE r <= 3;

-- w41 | share of browsers by month
SELECT DATE_TRUNC('month', started_at) AS month, browser, COUNT(*) * 100.0 / SUM(COUNT(*)) OVER (PARTITION BY DATE_TRUNC('month', started_at)) AS pct FROM sessions GROUP BY 1, 2;

-- w42 | above the average day
WITH d AS (SELECT CAST(started_at AS DATE) AS day, COUNT(*) AS n FROM sessions GROUP BY 1)
SELECT COUNT(*) AS busy_days FROM d WHERE n > (SELECT AVG(n) FROM d);

-- w43 | time between sessions
WITH g AS (SELECT user_id, DATE_DIFF('hour', LAG(started_at) OVER (PARTITION BY user_id ORDER BY started_at), started_at) AS gap FROM sessions)
SELECT AVG(gap) AS hours FROM g WHERE gap IS NOT NULL;

-- w44 | first touch
SELECT landing_page, COUNT(*) AS n FROM (
  SELECT user_id, ARG_MIN(landing_page, started_at) AS landing_page FROM sessions GROUP BY user_id) t GROUP BY landing_page;

-- w45 | mobile share
SELECT COUNT(CASE WHEN device = 'mobile' THEN 1 END)::DOUBLE / COUNT(*) AS mobile FROM sessions;

-- w46 | load times, spread
SELECT path, AVG(load_ms) AS mean, STDDEV_SAMP(load_ms) AS sd FROM page_views GROUP BY path;

-- w47 | geometric mean of load times
SELECT EXP(AVG(LN(load_ms + 1))) AS gm FROM page_views;

-- w48 | age of accounts
SELECT plan, AVG(DATE_DIFF('day', created_at, TIMESTAMP '2024-12-31 00:00:00')) AS age FROM users GROUP BY plan;

-- w49 | revenue per session
SELECT SUM(e.revenue) / COUNT(DISTINCT s.session_id) AS rps FROM sessions s LEFT JOIN events e ON e.session_id = s.session_id AND e.user_id = s.user_id;

-- w50 | local time
SELECT EXTRACT(HOUR FROM started_at AT TIME ZONE 'UTC' AT TIME ZONE 'Europe/Berlin') AS h, COUNT(*) AS n FROM sessions GROUP BY 1;

-- w51 | all contact points
SELECT src, COUNT(DISTINCT user_id) AS users FROM (
  SELECT user_id, 'view' AS src FROM page_views UNION ALL SELECT user_id, 'event' FROM events) t GROUP BY src;

-- w52 | raw log
-- refuse: shows rows of single people
SELECT * FROM events WHERE event = 'error' LIMIT 100;

-- w53 | distinct urls
-- refuse: a list of values of people
SELECT ARRAY_AGG(DISTINCT url) AS urls FROM page_views;

-- w54 | most active users
-- refuse: groups by the person
SELECT user_id, COUNT(*) AS n FROM sessions GROUP BY user_id HAVING COUNT(*) > 10;

-- w55 | random sample
-- refuse: random rows are not a function of the table
SELECT COUNT(*) AS n FROM sessions WHERE RANDOM() < 0.1;

-- s01 | revenue by month
SELECT DATE_TRUNC('month', ordered_at) AS month, SUM(total) AS revenue FROM orders WHERE status <> 'cancelled' GROUP BY month ORDER BY month;

-- s02 | orders, customers and revenue by channel
SELECT channel, COUNT(*) AS orders, COUNT(DISTINCT customer_id) AS customers, SUM(total) AS revenue FROM orders GROUP BY channel;

-- s03 | average order value
SELECT SUM(total) / COUNT(*) AS aov FROM orders WHERE status = 'delivered';

-- s04 | return rate by channel
SELECT channel, SUM(IF(status = 'returned', 1, 0)) / COUNT(*) AS return_rate FROM orders GROUP BY channel;

-- s05 | return rate, safely divided
-- dialect: bigquery
SELECT channel, SAFE_DIVIDE(COUNTIF(status = 'returned'), COUNT(*)) AS return_rate FROM `orders` GROUP BY channel;

-- s06 | best-selling categories
SELECT p.category, SUM(oi.quantity * oi.unit_price * (1 - oi.discount)) AS revenue
FROM order_items oi JOIN products p ON p.product_id = oi.product_id GROUP BY p.category ORDER BY revenue DESC;

-- s07 | top ten brands by units
SELECT p.brand, SUM(oi.quantity) AS units FROM order_items oi JOIN products p USING (product_id)
GROUP BY p.brand ORDER BY units DESC LIMIT 10;

-- s08 | revenue of items by channel
SELECT o.channel, SUM(oi.quantity * oi.unit_price) AS revenue
FROM orders o JOIN order_items oi ON oi.order_id = o.order_id GROUP BY o.channel;

-- s09 | revenue of items by country and category
SELECT c.country, p.category, SUM(oi.quantity * oi.unit_price) AS revenue
FROM order_items oi
JOIN orders o ON o.order_id = oi.order_id
JOIN customers c ON c.customer_id = o.customer_id
JOIN products p ON p.product_id = oi.product_id
GROUP BY c.country, p.category;

-- s10 | basket size
SELECT AVG(items) AS basket FROM (SELECT customer_id, order_id, SUM(quantity) AS items FROM order_items GROUP BY customer_id, order_id) b;

-- s11 | basket size, without naming the customer
SELECT AVG(items) AS basket FROM (SELECT order_id, SUM(quantity) AS items FROM order_items GROUP BY order_id) b;

-- s12 | shipping time in days
SELECT AVG(DATE_DIFF('day', ordered_at, shipped_at)) AS days FROM orders WHERE shipped_at IS NOT NULL;

-- s13 | late orders
SELECT channel, COUNT(*) AS late FROM orders WHERE shipped_at > ordered_at + INTERVAL '7 days' GROUP BY channel;

-- s14 | shipping time, Postgres
-- dialect: postgres
SELECT channel, AVG(EXTRACT(EPOCH FROM shipped_at - ordered_at) / 3600) AS hours FROM orders GROUP BY channel;

-- s15 | share of orders with a coupon
SELECT COUNT(coupon) * 1.0 / COUNT(*) AS with_coupon FROM orders;

-- s16 | coupons
SELECT COALESCE(coupon, 'none') AS coupon, COUNT(*) AS orders, AVG(total) AS aov FROM orders GROUP BY 1;

-- s17 | repeat customers
WITH c AS (SELECT customer_id, COUNT(*) AS orders FROM orders GROUP BY customer_id)
SELECT COUNT(*) FILTER (WHERE orders > 1) * 1.0 / COUNT(*) AS repeat_rate FROM c;

-- s18 | customers by number of orders
WITH c AS (SELECT customer_id, COUNT(*) AS k FROM orders GROUP BY 1)
SELECT CASE WHEN k = 1 THEN 'once' WHEN k <= 3 THEN 'few' ELSE 'many' END AS loyalty, COUNT(*) AS customers FROM c GROUP BY 1;

-- s19 | lifetime value by country
SELECT country, AVG(ltv) AS avg_ltv FROM (
  SELECT c.customer_id, c.country, SUM(o.total) AS ltv FROM customers c JOIN orders o ON o.customer_id = c.customer_id
  GROUP BY c.customer_id, c.country) t GROUP BY country;

-- s20 | revenue by age group
SELECT CASE WHEN 2024 - c.birth_year < 30 THEN 'young' WHEN 2024 - c.birth_year < 55 THEN 'middle' ELSE 'old' END AS age_group,
       SUM(o.total) AS revenue
FROM orders o JOIN customers c ON o.customer_id = c.customer_id GROUP BY age_group;

-- s21 | new customers by month
SELECT STRFTIME(signup_date, '%Y-%m') AS month, COUNT(*) AS signups FROM customers GROUP BY month ORDER BY month;

-- s22 | signups per quarter
SELECT YEAR(signup_date) AS y, QUARTER(signup_date) AS q, COUNT(*) AS signups FROM customers GROUP BY y, q ORDER BY y, q;

-- s23 | signups, BigQuery
-- dialect: bigquery
SELECT DATE_TRUNC(signup_date, MONTH) AS month, COUNT(*) AS signups FROM customers GROUP BY month ORDER BY month;

-- s24 | signups, Snowflake
-- dialect: snowflake
SELECT IFF(newsletter, 'yes', 'no') AS newsletter, COUNT(*) AS n FROM customers GROUP BY 1;

-- s25 | customers without an order
SELECT COUNT(*) AS inactive FROM customers c WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE o.customer_id = c.customer_id);

-- s26 | customers without an order since summer
SELECT country, COUNT(*) AS lapsed FROM customers WHERE customer_id NOT IN (
  SELECT customer_id FROM orders WHERE ordered_at >= '2024-07-01') GROUP BY country;

-- s27 | median order value by country
SELECT c.country, MEDIAN(o.total) AS median_total FROM orders o JOIN customers c ON c.customer_id = o.customer_id GROUP BY c.country;

-- s28 | percentiles of order value
SELECT PERCENTILE_CONT(0.25) WITHIN GROUP (ORDER BY total) AS p25, PERCENTILE_CONT(0.75) WITHIN GROUP (ORDER BY total) AS p75 FROM orders;

-- s29 | reasons for returns
SELECT reason, COUNT(*) AS n, SUM(refund) AS refunded FROM returns GROUP BY reason ORDER BY n DESC;

-- s30 | refunds as a share of revenue
SELECT (SELECT SUM(refund) FROM returns) / (SELECT SUM(total) FROM orders) AS refund_share;

-- s31 | refunds by payment
SELECT o.payment, SUM(r.refund) AS refunded FROM returns r JOIN orders o ON r.order_id = o.order_id AND r.customer_id = o.customer_id GROUP BY o.payment;

-- s32 | return rate by payment, left join
SELECT o.payment, COUNT(r.return_id) * 1.0 / COUNT(*) AS return_rate
FROM orders o LEFT JOIN returns r ON r.order_id = o.order_id AND r.customer_id = o.customer_id GROUP BY o.payment;

-- s33 | stars by category
SELECT p.category, AVG(r.stars) AS stars, COUNT(*) AS reviews FROM reviews r JOIN products p ON p.product_id = r.product_id
GROUP BY p.category HAVING COUNT(*) >= 100 ORDER BY stars DESC;

-- s34 | reviews that praise
SELECT COUNT(*) AS praise FROM reviews WHERE LOWER(body) LIKE '%great%';

-- s35 | unhappy customers who came back
SELECT COUNT(DISTINCT o.customer_id) AS back FROM orders o JOIN reviews r ON r.customer_id = o.customer_id
WHERE r.stars <= 2 AND o.ordered_at > r.reviewed_on;

-- s36 | e-mail providers
SELECT SPLIT_PART(email_domain, '.', 1) AS provider, COUNT(*) AS n FROM customers GROUP BY provider ORDER BY n DESC;

-- s37 | month over month growth
WITH m AS (SELECT DATE_TRUNC('month', ordered_at) AS month, SUM(total) AS revenue FROM orders GROUP BY 1)
SELECT month, revenue, revenue / LAG(revenue) OVER (ORDER BY month) - 1 AS growth FROM m ORDER BY month;

-- s38 | running total of 2024
WITH m AS (SELECT EXTRACT(MONTH FROM ordered_at) AS month, SUM(total) AS revenue FROM orders WHERE ordered_at >= '2024-01-01' AND ordered_at < '2025-01-01' GROUP BY 1)
SELECT month, revenue, SUM(revenue) OVER (ORDER BY month ROWS UNBOUNDED PRECEDING) AS ytd FROM m ORDER BY month;

-- s39 | three-month moving average
SELECT month, AVG(n) OVER (ORDER BY month ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS smooth FROM (
  SELECT DATE_TRUNC('month', ordered_at) AS month, COUNT(*) AS n FROM orders GROUP BY 1) t ORDER BY month;

-- s40 | share of each category within its country
SELECT c.country, o.channel, COUNT(*) AS n, COUNT(*) * 1.0 / SUM(COUNT(*)) OVER (PARTITION BY c.country) AS share
FROM orders o JOIN customers c ON c.customer_id = o.customer_id GROUP BY c.country, o.channel;

-- s41 | best channel of each country
SELECT c.country, o.channel, SUM(o.total) AS revenue FROM orders o JOIN customers c ON c.customer_id = o.customer_id
GROUP BY c.country, o.channel QUALIFY ROW_NUMBER() OVER (PARTITION BY c.country ORDER BY SUM(o.total) DESC) = 1;

-- s42 | average daily orders
SELECT AVG(n) AS daily_orders FROM (SELECT CAST(ordered_at AS DATE) AS day, COUNT(*) AS n FROM orders GROUP BY 1) d;

-- s43 | year over year
SELECT SUM(CASE WHEN YEAR(ordered_at) = 2024 THEN total END) AS y2024,
       SUM(CASE WHEN YEAR(ordered_at) = 2023 THEN total END) AS y2023,
       SUM(CASE WHEN YEAR(ordered_at) = 2024 THEN total END) / SUM(CASE WHEN YEAR(ordered_at) = 2023 THEN total END) - 1 AS growth
FROM orders;

-- s44 | first order month of customers (cohorts)
WITH f AS (SELECT customer_id, MIN(ordered_at) AS first_order FROM orders GROUP BY customer_id)
SELECT DATE_TRUNC('month', first_order) AS cohort, COUNT(*) AS customers FROM f GROUP BY cohort ORDER BY cohort;

-- s45 | days from signup to first order
SELECT AVG(DATE_DIFF('day', c.signup_date, f.first_order)) AS days FROM customers c
JOIN (SELECT customer_id, MIN(CAST(ordered_at AS DATE)) AS first_order FROM orders GROUP BY customer_id) f ON f.customer_id = c.customer_id
WHERE f.first_order >= c.signup_date;

-- s46 | order values in bins
-- dialect: postgres
SELECT WIDTH_BUCKET(total, 0, 500, 10) AS bin, COUNT(*) AS n FROM orders GROUP BY bin ORDER BY bin;

-- s47 | order values in bins of 50
SELECT FLOOR(total / 50) * 50 AS bin, COUNT(*) AS n FROM orders GROUP BY 1 ORDER BY 1;

-- s48 | newsletter and spending
SELECT c.newsletter, AVG(o.total) AS aov, VARIANCE(o.total) AS spread FROM customers c RIGHT JOIN orders o ON o.customer_id = c.customer_id GROUP BY c.newsletter;

-- s49 | first and last order date
SELECT MIN(ordered_at) AS first_order, MAX(ordered_at) AS last_order FROM orders;

-- s50 | discount and quantity
SELECT REGR_SLOPE(quantity, discount) AS slope, COVAR_POP(quantity, discount) AS cov FROM order_items;

-- s51 | free shipping
SELECT shipping_fee = 0 AS free, COUNT(*) AS n FROM orders GROUP BY shipping_fee = 0;

-- s52 | last 90 days
SELECT COUNT(*) AS orders FROM orders WHERE ordered_at >= CURRENT_DATE - INTERVAL 90 DAY;

-- s53 | schema-qualified
SELECT COUNT(*) AS n FROM main.orders WHERE status NOT IN ('cancelled', 'open');

-- s54 | customers who bought books and games
SELECT COUNT(*) AS n FROM (
  SELECT oi.customer_id FROM order_items oi JOIN products p ON p.product_id = oi.product_id WHERE p.category IN ('Books', 'Games')
  GROUP BY oi.customer_id HAVING COUNT(DISTINCT p.category) = 2) t;

-- s55 | products bought together
SELECT pa.category AS a, pb.category AS b, COUNT(*) AS n
FROM order_items x JOIN order_items y ON x.order_id = y.order_id AND x.product_id < y.product_id
JOIN products pa ON pa.product_id = x.product_id JOIN products pb ON pb.product_id = y.product_id
GROUP BY 1, 2 ORDER BY n DESC LIMIT 10;

-- s56 | best customers
-- refuse: groups by the person
SELECT customer_id, SUM(total) AS revenue FROM orders GROUP BY customer_id ORDER BY revenue DESC LIMIT 10;

-- s57 | largest order
-- refuse: shows rows of single people
SELECT order_id, total FROM orders ORDER BY total DESC LIMIT 1;

-- s58 | latest reviews
-- refuse: shows rows of single people
SELECT body, stars FROM reviews ORDER BY reviewed_on DESC LIMIT 50;

-- s59 | orders of the same city
-- refuse: joins different people
SELECT COUNT(*) AS n FROM customers a JOIN customers b ON a.city = b.city WHERE a.country <> b.country;

-- h01 | visits per ward
SELECT w.ward, COUNT(*) AS visits FROM visits v JOIN wards w ON v.ward_id = w.ward_id GROUP BY w.ward ORDER BY visits DESC;

-- h02 | patients seen in 2024
SELECT COUNT(DISTINCT patient_id) AS patients FROM visits WHERE EXTRACT(YEAR FROM admitted_at) = 2024;

-- h03 | monthly admissions
SELECT DATE_TRUNC('month', admitted_at) AS month, COUNT(*) AS admissions FROM visits GROUP BY 1 ORDER BY 1;

-- h04 | average cost by type of visit
SELECT visit_type, AVG(cost) AS avg_cost, COUNT(*) AS n FROM visits GROUP BY visit_type;

-- h05 | length of stay in hours
SELECT w.ward, AVG(DATE_DIFF('hour', v.admitted_at, v.discharged_at)) AS hours
FROM visits v JOIN wards w USING (ward_id) WHERE v.discharged_at IS NOT NULL GROUP BY w.ward;

-- h06 | average stay in days by outcome
SELECT outcome, AVG(DATE_DIFF('day', admitted_at, discharged_at)) AS days FROM visits GROUP BY outcome;

-- h07 | mortality by ward
SELECT w.ward, 100.0 * SUM(CASE WHEN v.outcome = 'died' THEN 1 ELSE 0 END) / COUNT(*) AS mortality_pct
FROM visits v JOIN wards w ON w.ward_id = v.ward_id GROUP BY w.ward;

-- h08 | share of emergencies
SELECT AVG(CASE WHEN visit_type = 'emergency' THEN 1.0 ELSE 0.0 END) AS emergency_share FROM visits;

-- h09 | admissions by hour of the day
SELECT EXTRACT(HOUR FROM admitted_at) AS hour, COUNT(*) AS n FROM visits GROUP BY hour ORDER BY hour;

-- h10 | admissions by weekday
SELECT EXTRACT(DOW FROM admitted_at) AS weekday, COUNT(*) AS n FROM visits GROUP BY 1 ORDER BY 1;

-- h11 | age bands
SELECT CASE WHEN age < 18 THEN '0-17' WHEN age < 65 THEN '18-64' ELSE '65+' END AS band, COUNT(*) AS patients
FROM (SELECT DATE_DIFF('year', birth_date, DATE '2024-12-31') AS age FROM patients) a GROUP BY band;

-- h12 | decades of birth
SELECT FLOOR(EXTRACT(YEAR FROM birth_date) / 10) * 10 AS decade, COUNT(*) AS n FROM patients GROUP BY decade ORDER BY decade;

-- h13 | body mass index
SELECT sex, AVG(weight_kg / POWER(height_cm / 100, 2)) AS bmi FROM patients
WHERE weight_kg IS NOT NULL AND height_cm IS NOT NULL GROUP BY sex;

-- h14 | smokers by insurance
SELECT insurance, COUNT(*) FILTER (WHERE smoker) AS smokers, COUNT(*) AS patients FROM patients GROUP BY insurance;

-- h15 | median cost
SELECT MEDIAN(cost) AS median_cost FROM visits;

-- h16 | percentiles of the cost by type
SELECT visit_type, QUANTILE_CONT(cost, 0.5) AS p50, QUANTILE_CONT(cost, 0.9) AS p90 FROM visits GROUP BY visit_type;

-- h17 | top ten towns
SELECT town, COUNT(*) AS patients FROM patients GROUP BY town ORDER BY patients DESC LIMIT 10;

-- h18 | towns with more than 300 patients
SELECT town, COUNT(*) AS patients FROM patients GROUP BY town HAVING COUNT(*) > 300 ORDER BY 2 DESC;

-- h19 | frequent visitors
WITH per_patient AS (SELECT patient_id, COUNT(*) AS visits FROM visits GROUP BY patient_id)
SELECT visits, COUNT(*) AS patients FROM per_patient GROUP BY visits ORDER BY visits;

-- h20 | average number of visits per patient
SELECT AVG(n) AS visits_per_patient FROM (SELECT patient_id, COUNT(*) AS n FROM visits GROUP BY patient_id) t;

-- h21 | cost per patient
WITH spend AS (SELECT patient_id, SUM(cost) AS total FROM visits GROUP BY patient_id)
SELECT AVG(total) AS mean, MEDIAN(total) AS median FROM spend;

-- h22 | diagnoses by chapter
SELECT i.chapter, COUNT(*) AS n FROM diagnoses d JOIN icd i ON d.icd_code = i.icd_code GROUP BY i.chapter ORDER BY n DESC;

-- h23 | primary diagnoses by sex
SELECT p.sex, d.icd_code, COUNT(*) AS n FROM diagnoses d JOIN patients p ON p.patient_id = d.patient_id
WHERE d.position = 1 GROUP BY p.sex, d.icd_code;

-- h24 | cost of visits with heart failure
SELECT AVG(v.cost) AS avg_cost FROM visits v JOIN diagnoses d ON d.visit_id = v.visit_id WHERE d.icd_code = 'I50';

-- h25 | cost by diagnosis
SELECT d.icd_code, SUM(v.cost) AS cost FROM visits v
JOIN diagnoses d ON v.patient_id = d.patient_id AND v.visit_id = d.visit_id GROUP BY d.icd_code ORDER BY cost DESC;

-- h26 | prescriptions per visit type
SELECT v.visit_type, COUNT(*) AS prescriptions, SUM(rx.price) AS spent
FROM prescriptions rx JOIN visits v ON v.visit_id = rx.visit_id AND v.patient_id = rx.patient_id GROUP BY v.visit_type;

-- h27 | drug classes
SELECT dr.class, COUNT(DISTINCT rx.patient_id) AS patients, SUM(rx.price) AS spent
FROM prescriptions rx INNER JOIN drugs dr ON dr.drug_id = rx.drug_id GROUP BY dr.class;

-- h28 | diabetics without an antidiabetic
SELECT COUNT(DISTINCT d.patient_id) AS untreated FROM diagnoses d
WHERE d.icd_code = 'E11' AND NOT EXISTS (
  SELECT 1 FROM prescriptions rx WHERE rx.patient_id = d.patient_id AND rx.drug_id IN (2, 7));

-- h29 | patients never seen
SELECT COUNT(*) AS never_seen FROM patients p LEFT JOIN visits v ON v.patient_id = p.patient_id WHERE v.patient_id IS NULL;

-- h30 | patients with an opioid
SELECT COUNT(*) AS patients FROM patients p WHERE p.patient_id IN (SELECT patient_id FROM prescriptions WHERE drug_id = 4);

-- h31 | patients with an emergency, by insurance
SELECT p.insurance, COUNT(*) AS patients FROM patients p
WHERE EXISTS (SELECT 1 FROM visits v WHERE v.patient_id = p.patient_id AND v.visit_type = 'emergency') GROUP BY p.insurance;

-- h32 | average laboratory value by test and sex
SELECT l.test, p.sex, AVG(l.value) AS mean, STDDEV(l.value) AS sd FROM labs l, patients p
WHERE l.patient_id = p.patient_id GROUP BY l.test, p.sex;

-- h33 | abnormal results
SELECT test, SUM(CASE WHEN value > 20 THEN 1 ELSE 0 END) * 1.0 / COUNT(value) AS abnormal FROM labs GROUP BY test;

-- h34 | missing results
SELECT test, COUNT(*) - COUNT(value) AS missing FROM labs GROUP BY test;

-- h35 | month over month growth of admissions
WITH monthly AS (SELECT DATE_TRUNC('month', admitted_at) AS month, COUNT(*) AS n FROM visits GROUP BY 1)
SELECT month, n, n - LAG(n) OVER (ORDER BY month) AS change FROM monthly ORDER BY month;

-- h36 | cumulative admissions in 2024
SELECT month, SUM(n) OVER (ORDER BY month) AS so_far FROM (
  SELECT EXTRACT(MONTH FROM admitted_at) AS month, COUNT(*) AS n FROM visits WHERE EXTRACT(YEAR FROM admitted_at) = 2024 GROUP BY 1) m
ORDER BY month;

-- h37 | ranks of the wards
SELECT w.ward, COUNT(*) AS n, RANK() OVER (ORDER BY COUNT(*) DESC) AS place
FROM visits v JOIN wards w ON v.ward_id = w.ward_id GROUP BY w.ward;

-- h38 | each ward's share of all visits
SELECT ward_id, COUNT(*) AS n, ROUND(100.0 * COUNT(*) / SUM(COUNT(*)) OVER (), 1) AS pct FROM visits GROUP BY ward_id;

-- h39 | busiest ward of each building
SELECT building, ward, n FROM (
  SELECT w.building, w.ward, COUNT(*) AS n, ROW_NUMBER() OVER (PARTITION BY w.building ORDER BY COUNT(*) DESC) AS rn
  FROM visits v JOIN wards w ON v.ward_id = w.ward_id GROUP BY w.building, w.ward) t WHERE rn = 1;

-- h40 | readmissions within 30 days
WITH ordered AS (
  SELECT patient_id, admitted_at, LAG(discharged_at) OVER (PARTITION BY patient_id ORDER BY admitted_at) AS before FROM visits)
SELECT COUNT(*) AS readmissions FROM ordered WHERE admitted_at <= before + INTERVAL 30 DAY AND admitted_at > before;

-- h41 | first visits by type
WITH numbered AS (SELECT patient_id, visit_type, ROW_NUMBER() OVER (PARTITION BY patient_id ORDER BY admitted_at) AS k FROM visits)
SELECT visit_type, COUNT(*) AS first_visits FROM numbered WHERE k = 1 GROUP BY visit_type;

-- h42 | patients in both 2023 and 2024
SELECT COUNT(*) AS both_years FROM (
  SELECT patient_id FROM visits GROUP BY patient_id
  HAVING SUM(CASE WHEN EXTRACT(YEAR FROM admitted_at) = 2023 THEN 1 ELSE 0 END) > 0
     AND SUM(CASE WHEN EXTRACT(YEAR FROM admitted_at) = 2024 THEN 1 ELSE 0 END) > 0) t;

-- h43 | cost and length of stay
SELECT CORR(cost, triage) AS r FROM visits;

-- h44 | quarterly cost per building
SELECT w.building, CONCAT(EXTRACT(YEAR FROM admitted_at), '-Q', EXTRACT(QUARTER FROM admitted_at)) AS quarter, SUM(cost) AS cost
FROM visits v JOIN wards w ON v.ward_id = w.ward_id GROUP BY 1, 2 ORDER BY 1, 2;

-- h45 | visits per bed
SELECT w.ward, COUNT(*) * 1.0 / MAX(w.beds) AS visits_per_bed FROM visits v JOIN wards w ON v.ward_id = w.ward_id GROUP BY w.ward;

-- h46 | weekend emergencies
SELECT COUNT(*) AS n FROM visits WHERE visit_type = 'emergency' AND EXTRACT(DOW FROM admitted_at) IN (0, 6);

-- h47 | current age
SELECT AVG(DATE_DIFF('year', birth_date, CURRENT_DATE)) AS age FROM patients;

-- h48 | doctors with the most deaths
SELECT doctor_id, COUNT(*) AS deaths FROM visits WHERE outcome = 'died' GROUP BY doctor_id ORDER BY deaths DESC FETCH FIRST 5 ROWS ONLY;

-- h49 | outcome by triage, all columns
SELECT triage, outcome, COUNT(*) AS n FROM visits GROUP BY ALL;

-- h50 | cost with totals
SELECT visit_type, outcome, SUM(cost) AS cost FROM visits GROUP BY ROLLUP (visit_type, outcome);

-- h51 | both kinds of contact
SELECT kind, COUNT(*) AS n FROM (
  SELECT patient_id, 'lab' AS kind FROM labs UNION ALL SELECT patient_id, 'prescription' AS kind FROM prescriptions) c GROUP BY kind;

-- h52 | the ten dearest visits
-- refuse: shows rows of single people
SELECT patient_id, admitted_at, cost FROM visits ORDER BY cost DESC LIMIT 10;

-- h53 | a patient's file
-- refuse: shows rows of single people
SELECT * FROM visits WHERE patient_id = 4711;

-- h54 | spend per patient
-- refuse: groups by the person
SELECT patient_id, SUM(cost) AS spend FROM visits GROUP BY patient_id ORDER BY spend DESC LIMIT 20;

-- h55 | list of diagnoses
-- refuse: a list of values of people
SELECT sex, STRING_AGG(town, ', ') AS towns FROM patients GROUP BY sex;

-- h56 | two patients in the same ward on one day
-- refuse: joins different people
SELECT COUNT(*) AS pairs FROM visits a JOIN visits b ON a.ward_id = b.ward_id AND a.patient_id < b.patient_id;
